"""Pictures of a report, as data URIs, so that the page needs no other file."""

from __future__ import annotations

from base64 import b64encode
from io import BytesIO

import numpy as np

from gleak.artifacts.pictures import enlarged, picture
from gleak.assessment.findings import Exposure, Variation
from gleak.figures.canvas.style import NEUTRAL, VOLATILE, new_figure, theme

WIDTH, HEIGHT = 5.0, 2.6  # inches
SAFE_COLOURS = ("#0173b2", "#de8f05", "#029e73", "#d55e00")


def sample_uri(sample: np.ndarray) -> str:
    """Return an image of Shape (C, H, W), enlarged, as a PNG."""
    buffer = BytesIO()
    enlarged(picture(sample)).save(buffer, format="PNG")
    return _uri("image/png", buffer.getvalue())


def variation_uris(variation: Variation) -> list[str]:
    """Return a picture of the leakage along a field for each metric, as SVGs."""
    metrics = [exposure.metric for point in variation.points for exposure in point.exposures]
    return [_variation_uri(variation, metric) for metric in dict.fromkeys(metrics)]


def _variation_uri(variation: Variation, metric: str) -> str:
    """Return a line of the leakage along a field in a metric, with 95% intervals, as an SVG."""
    found = {
        point.value: exposure
        for point in variation.points
        for exposure in point.exposures
        if exposure.metric == metric
    }
    values, rows = list(found), list(found.values())
    first = rows[0]
    with theme():
        figure = new_figure(WIDTH, HEIGHT)
        axes = figure.subplots()
        _line(axes, rows, "attacked", SAFE_COLOURS[0], f"{first.attack}, best sample of a client")
        _line(axes, rows, "blind", NEUTRAL, "guess without the update")
        axes.axhline(first.threshold, color=SAFE_COLOURS[3], linestyle=":", label="threshold")
        axes.set_xticks(range(len(values)), values)
        axes.set_xlabel(variation.field)
        axes.set_ylabel(first.metric)
        axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
        buffer = BytesIO()
        figure.savefig(buffer, format="svg", bbox_inches="tight", metadata=VOLATILE["svg"])
    return _uri("image/svg+xml", buffer.getvalue())


def _line(axes: object, rows: list[Exposure], key: str, colour: str, label: str) -> None:
    """Draw a mean at each value, with its interval where there is one."""
    means = [getattr(row, key) for row in rows]
    middle = np.array([np.nan if each.value is None else each.value for each in means])
    ends = np.array([[each.low, each.high] for each in means], dtype=float).T
    spread = np.abs(ends - middle)
    axes.errorbar(  # type: ignore[attr-defined]
        range(len(rows)), middle, spread, color=colour, marker="o", capsize=3, label=label
    )


def _uri(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{b64encode(content).decode()}"
