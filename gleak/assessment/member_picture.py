"""Picture of the members that are found under each defence."""

from __future__ import annotations

from itertools import cycle

from gleak.assessment.charts import ATTACKS, UNKNOWN, Series, draw_series, figure_uri
from gleak.assessment.findings import Report, Varied
from gleak.assessment.strips import Strip
from gleak.assessment.wording import bare_name, format_percent, readable
from gleak.figures.canvas.style import theme
from gleak.metrics.discrimination import TruePositiveRate


def member_strip(report: Report) -> Strip | None:
    """Return the picture of a report; None of a single defence, where a table says as much."""
    rows = {(row.defense, row.method): row for row in report.took_part}
    defenses = {row.defense: row.deployed for row in report.took_part}
    if len(defenses) < 2:
        return None
    points = [
        Varied(value=readable(name), number=None, deployed=own, exposures=[], reasons=[])
        for name, own in defenses.items()
    ]
    methods = dict.fromkeys(row.method for row in report.took_part)
    series = [
        Series(
            bare_name(method),
            [rows[name, method].tpr if (name, method) in rows else UNKNOWN for name in defenses],
            look,
        )
        for method, look in zip(methods, cycle(ATTACKS), strict=False)
    ]
    tpr = str(TruePositiveRate())
    limits = (rate.threshold for rate in report.took_part[0].rates if rate.metric == tpr)
    threshold = next(limits, None) if report.took_part else None
    with theme():
        figure = draw_series(
            "defence", points, False, series, "members found at 1% false positives", True, threshold
        )
        uri = figure_uri(figure)
    texts = [
        f"{readable(row.defense)}, by {bare_name(row.method)}: {format_percent(row.tpr)}"
        for row in report.took_part
    ]
    return Strip(uri, f"Members found at 1% false positives. {'; '.join(texts)}.")
