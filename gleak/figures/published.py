"""Values published in the papers: ``studies/published/<study>.csv``.

Columns: ``figure`` (as in the study), any of the levels (canonical or not; empty matches any
value), ``metric``, ``statistic``, ``value`` in the units of our metrics, ``note``, and
``incomparable``, why the value cannot be compared with ours. A value stands only beside the same
metric, a spec with its fields: LPIPS of AlexNet, `lpips+net=alex`, is no value of `lpips`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path

from gleak.core.errors import SpecError, nearest
from gleak.core.lazy import pandas as pd
from gleak.figures.statistics import Row, records
from gleak.metrics.score_table import LEVEL_COLUMNS
from gleak.studies.axis_labels import AxisLabels, bare, read_metric, read_spec
from gleak.studies.cell import Cell

REQUIRED = ("figure", "metric", "statistic", "value", "note")
INCOMPARABLE = "incomparable"
COLUMNS = (*REQUIRED, INCOMPARABLE, *LEVEL_COLUMNS)


def read_published(path: Path | str) -> pd.DataFrame:
    """Read and check published values; levels are specs, or "" for any value.

    Raises:
        SpecError: an unknown column or spec, or a repeated value; names the file and line.
    """
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    found = set(map(str, table))
    missing, unknown = set(REQUIRED) - found, sorted(found - set(COLUMNS))
    if missing or unknown:
        hint = nearest((unknown or ["?"])[0], COLUMNS)
        raise SpecError(f"{path}: columns missing {sorted(missing)}, unknown {unknown}; {hint}")
    for level in [column for column in LEVEL_COLUMNS if column in table]:
        table[level] = _each(table[level], partial(read_spec, level), path)
    table["metric"] = _each(table["metric"], lambda text: str(read_metric(text)), path)
    table["value"] = _each(table["value"], float, path).astype(float)
    told = ("value", "note", INCOMPARABLE)
    again = table.duplicated([column for column in table if column not in told])
    if again.any():
        raise SpecError(f"{path}, line {again.argmax() + 2}: this value is given twice")
    return table if INCOMPARABLE in table else table.assign(**{INCOMPARABLE: ""})


def empty_published() -> pd.DataFrame:
    """Return a table of published values without rows."""
    return pd.DataFrame({column: [] for column in (*REQUIRED, INCOMPARABLE)})


def _each(column: pd.Series, read: Callable[[str], object], path: Path | str) -> pd.Series:
    def read_line(line: int, text: str) -> object:
        try:
            return read(text) if text else text
        except (SpecError, ValueError) as error:
            raise SpecError(f"{path}, line {line + 2}: {error}") from None

    values = [read_line(line, text) for line, text in enumerate(column)]
    return pd.Series(values, index=column.index)


def add_published(
    summary: pd.DataFrame, published: pd.DataFrame, names: AxisLabels
) -> pd.DataFrame:
    """Add the values published for a figure to a summary, which has the ``cell`` of each row.

    Returns:
        The summary with the columns ``published`` (NaN for none), ``incomparable``, why a published
        value is not shown, and ``stand_in``, the published specs that ours substitute.
    """
    values, reasons, stand_ins = [], [], []
    for row in records(summary):
        same = _of_setting(row, published, names)
        reasons.append(_reason(row, same, {*summary["metric"]}))
        values.append(math.nan if reasons[-1] else _value(row, same))
        pairs = [
            (ours, names.substituted.get(level, {}).get(ours))
            for level, ours in row["cell"].specs.items()
        ]
        stand_ins.append("; ".join(f"{ours} for {theirs}" for ours, theirs in pairs if theirs))
    return summary.assign(published=values, incomparable=reasons, stand_in=stand_ins).astype(
        {"published": float}
    )


def published_values(
    cells: Sequence[Cell | None],
    metric: str,
    statistic: str,
    published: pd.DataFrame,
    names: AxisLabels,
) -> list[float]:
    """Return the paper's value of each cell in one figure, NaN for none that is comparable.

    The metric is a canonical spec; a cell that does not exist is None.
    """
    comparable = published[published[INCOMPARABLE] == ""]
    rows = [{"metric": metric, "statistic": statistic, "cell": cell} for cell in cells]
    return [
        math.nan if row["cell"] is None else _value(row, _of_setting(row, comparable, names))
        for row in rows
    ]


def why_incomparable(
    cells: Sequence[Cell | None],
    metric: str,
    statistic: str,
    published: pd.DataFrame,
    names: AxisLabels,
) -> list[str]:
    """Return why the paper's values of cells in one figure are not comparable, each reason once."""
    told = published[(published["metric"] == metric) & (published[INCOMPARABLE] != "")]
    rows = [{"metric": metric, "statistic": statistic, "cell": c} for c in cells if c is not None]
    reasons = (reason for row in rows for reason in _of_setting(row, told, names)[INCOMPARABLE])
    return list(dict.fromkeys(map(str, reasons)))


def _value(row: Row, same: pd.DataFrame) -> float:
    """Return the published value of a row's metric, NaN if there is none."""
    values = same.loc[same["metric"] == row["metric"], "value"]
    return math.nan if values.empty else float(values.iloc[0])


def _reason(row: Row, same: pd.DataFrame, shown: Collection[str]) -> str:
    """Return why the published value is not comparable; empty if it is, or there is none.

    A value of another metric of the name is none, if that metric is shown too.
    """
    own = same[same["metric"] == row["metric"]]
    if not own.empty:
        return str(own[INCOMPARABLE].iloc[0])
    others = [metric for metric in same["metric"] if metric not in shown]
    return f"published is {others[0]}, ours {row['metric']}" if others else ""


def _of_setting(row: Row, published: pd.DataFrame, names: AxisLabels) -> pd.DataFrame:
    """Return what is published of a row's statistic, setting and kind of metric."""
    same = published[
        (published["metric"].map(bare) == bare(row["metric"]))
        & (published["statistic"] == row["statistic"])
    ]
    for level in [level for level in LEVEL_COLUMNS if level in published]:
        known = {spec for spec in published[level] if spec != ""}
        wanted = names.published(level, row["cell"].specs.get(level), known)
        same = same[same[level].isin(["", wanted])]
    return same
