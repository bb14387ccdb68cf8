"""Verdicts on the expectations of a study."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from gleak.artifacts.atomic import atomic
from gleak.core.errors import GleakError
from gleak.core.numbers import format_value
from gleak.experiments.axis_labels import AxisLabels, read_metric
from gleak.experiments.claims import Expectation
from gleak.figures.blind_comparison import warn_of_weak_attacks
from gleak.figures.statistics import Row, join_cells, records, summarise
from gleak.figures.verdict_page import write_page
from gleak.metrics.score_table import read_scores

if TYPE_CHECKING:
    from gleak.experiments.study import Study

logger = logging.getLogger(__name__)

COLUMNS = ["id", "level", "claim", "source", "group", "ours", "verdict"]
NO_DATA = "no data"


def judge_study(study: Study, scale: str, scores: Mapping[str, Path], folder: Path) -> pd.DataFrame:
    """Check every expectation of a study against our scores.

    Writes ``expectations.csv``, ``expectations.md`` and ``expectations.html``: one row per
    expectation and group of cells that it compares (a claim may hold on MNIST and fail on LFW).

    Args:
        study: with the expectations.
        scale: of the grids.
        scores: grid -> its table (`gleak.figures.tabulate`).
        folder: of the outputs.

    Returns:
        The table.

    Raises:
        GleakError: if a gate fails or has no data, after all files are written.
    """
    tables = {grid: read_scores([path]) for grid, path in scores.items()}
    table = judge_claims(study, scale, tables)
    warn_of_weak_attacks(study, scale, tables)
    _write(table, write_page(study, scale, table), folder)
    _stop_at_gates(table)
    return table


def judge_claims(study: Study, scale: str, tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return the verdicts: one row per expectation and group of cells that it compares.

    Args:
        study: with the expectations.
        scale: of the grids.
        tables: grid -> its scores.
    """
    rows = [
        {**expectation.model_dump(include={"id", "level", "claim", "source"}), **verdict}
        for expectation in study.claims(scale)
        for verdict in _verdicts(
            expectation, tables[expectation.grid], study.grid(expectation.grid, scale).names
        )
    ]
    return pd.DataFrame(rows, columns=COLUMNS)


def _write(table: pd.DataFrame, page: str, folder: Path) -> None:
    with atomic(folder / "expectations.csv") as temporary:
        table.to_csv(temporary, index=False, lineterminator="\n")
    with atomic(folder / "expectations.md") as temporary:
        text = table.to_markdown(index=False, disable_numparse=True)
        temporary.write_text(f"{text}\n", encoding="utf-8")
    with atomic(folder / "expectations.html") as temporary:
        temporary.write_text(page, encoding="utf-8")


def _stop_at_gates(table: pd.DataFrame) -> None:
    failed = table[table["verdict"] != "holds"]
    for row in records(failed):
        logger.warning("%s (%s): %s; %s", row["id"], row["group"], row["verdict"], row["ours"])
    gates = sorted(set(failed.loc[failed["level"] == "gate", "id"]))
    if gates:
        raise GleakError(f"gates not passed: {', '.join(gates)}; see expectations.md")


def _verdicts(expectation: Expectation, scores: pd.DataFrame, names: AxisLabels) -> Iterator[Row]:
    """Yield one verdict per group; a single one without data if the grid has no such cells."""
    metric = read_metric(expectation.metric)
    summary = summarise(scores, metric, expectation.statistic, expectation.over)
    rows = {row["cell"]: row for row in records(join_cells(summary, names))}
    groups = expectation.groups(names, list(rows))
    if not groups:
        yield {"group": "", "ours": "", "verdict": NO_DATA}
    along, order = expectation.compared
    varying = names.varying([cell for cells in groups for cell in cells])
    heading = [level for level in varying if level not in names.together(along)]
    for cells in groups:
        labels, values, numbers = _values(along, order, [rows[cell] for cell in cells], names)
        yield {
            "group": ", ".join(names.heading(level, cells[0].specs[level]) for level in heading),
            "ours": ", ".join(" ".join(p).strip() for p in zip(labels, numbers, strict=True)),
            "verdict": expectation.judge(values),
        }


def _values(
    along: str, order: list[str], rows: list[Row], names: AxisLabels
) -> tuple[list[str], list[float], list[str]]:
    """Return the labels of the compared cells, their values (NaN for none) and these as text."""
    nothing: Row = {"ours": math.nan, "reason": ""}
    labels, compared = [""] * len(rows), rows
    if along:
        by_spec = {row["cell"].specs[along]: row for row in rows}
        values = [(text, names.resolve(along, text)) for text in order]
        labels = [text if value is None else names.label(along, value) for text, value in values]
        compared = [
            nothing if value is None else by_spec.get(value, nothing) for _, value in values
        ]
    texts = [format_value(row["ours"], row["reason"]) for row in compared]
    return labels, [row["ours"] for row in compared], texts
