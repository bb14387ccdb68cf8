"""Values published in the papers: ``studies/published/<study>.csv``.

Columns: ``figure`` (as in the study), any of the levels (canonical or not; empty matches any
value), ``metric``, ``statistic``, ``value`` in the units of our metrics, and ``note``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pandas as pd

from gleak.core.errors import SpecError, nearest
from gleak.experiments.axis_labels import AxisLabels, read_metric, read_spec
from gleak.figures.statistics import Row, records
from gleak.metrics.score_table import LEVEL_COLUMNS

REQUIRED = ("figure", "metric", "statistic", "value", "note")
COLUMNS = (*REQUIRED, *LEVEL_COLUMNS)


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
    again = table.duplicated([column for column in table if column not in ("value", "note")])
    if again.any():
        raise SpecError(f"{path}, line {again.argmax() + 2}: this value is given twice")
    return table


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
    """Add the published value to each row of a summary.

    Args:
        summary: from `gleak.figures.statistics.summarise`, with the ``cell`` of each row.
        published: rows of one figure.
        names: labels of the grid, with its substitutes.

    Returns:
        The summary with the columns ``published`` (NaN for none) and ``stand_in``, the published
        specs that ours substitute.
    """
    levels = [level for level in LEVEL_COLUMNS if level in published]
    rows = records(summary)
    values = [_find(row, published, names, levels) for row in rows]
    notes = [_stand_ins(row, names) for row in rows]
    return summary.assign(
        published=pd.Series(values, index=summary.index, dtype=float), stand_in=notes
    )


def _find(row: Row, published: pd.DataFrame, names: AxisLabels, levels: list[str]) -> float | None:
    same = published[
        (published["metric"] == row["metric"]) & (published["statistic"] == row["statistic"])
    ]
    for level in levels:
        known = {spec for spec in published[level] if spec != ""}
        wanted = names.published(level, row["cell"].specs.get(level), known)
        same = same[same[level].isin(["", wanted])]
    return None if same.empty else float(same["value"].iloc[0])


def _stand_ins(row: Row, names: AxisLabels) -> str:
    pairs = [
        (ours, names.substituted.get(level, {}).get(ours))
        for level, ours in row["cell"].specs.items()
    ]
    return "; ".join(f"{ours} for {theirs}" for ours, theirs in pairs if theirs)
