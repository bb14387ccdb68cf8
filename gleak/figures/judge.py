"""Verdicts on the expectations of a study."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from gleak.artifacts.atomic import atomic
from gleak.core.errors import GleakError
from gleak.core.numbers import format_number, format_value
from gleak.figures.blind_comparison import warn_of_weak_attacks
from gleak.figures.evidence import (
    Evidence,
    Measured,
    collect,
    judge,
    measure,
    needed,
    none_above_blind,
)
from gleak.figures.intervals import FEWEST
from gleak.figures.published import empty_published, published_values, read_published
from gleak.figures.statistics import Row, cells_of, join_cells, records, refusals
from gleak.figures.verdict_page import (
    NO_NUMBER,
    STRONGER,
    describe_needed,
    verdicts_in_markdown,
    write_page,
)
from gleak.metrics.score_table import read_scores
from gleak.studies.axis_labels import AxisLabels, read_metric
from gleak.studies.cell import Cell
from gleak.studies.claims import Comparison, Expectation
from gleak.studies.refusals import levels_of

if TYPE_CHECKING:
    from gleak.studies.study import Study

logger = logging.getLogger(__name__)

CLAIM = ["id", "level", "claim", "source"]
EVIDENCE = ["compared", "paper", "ours", "interval", "found", "n", "verdict", "needed"]
COLUMNS = [*CLAIM, "group", "measured", *EVIDENCE]


def judge_study(
    study: Study,
    scale: str,
    scores: Mapping[str, Path],
    folder: Path,
    published: Path | None = None,
) -> pd.DataFrame:
    """Check every expectation of a study against our scores.

    Writes ``expectations.csv``, ``expectations.md`` and ``expectations.html``: one row per
    expectation and group of cells that it compares (a claim may hold on MNIST and fail on LFW).

    Args:
        study: with the expectations.
        scale: of the grids.
        scores: grid -> its table (`gleak.figures.tabulate`).
        folder: of the outputs.
        published: the paper's values; None if there are none.

    Returns:
        The table.

    Raises:
        GleakError: if a gate does not hold, after all files are written.
    """
    tables = {grid: read_scores([path]) for grid, path in scores.items()}
    papers = empty_published() if published is None else read_published(published)
    table = judge_claims(study, scale, tables, papers)
    warn_of_weak_attacks(study, scale, tables)
    _write(table, write_page(study, scale, table), folder)
    _stop_at_gates(table)
    return table


def judge_claims(
    study: Study, scale: str, tables: Mapping[str, pd.DataFrame], published: pd.DataFrame
) -> pd.DataFrame:
    """Return the verdicts: one row per expectation and group of cells that it compares.

    Columns besides those of the claim: ``measured``, the mean of each cell; for each comparison of
    the claim, one after another with semicolons, ``compared``, the number ``paper`` gives, ``ours``
    with its 95% ``interval``, where samples not found count as blind, and ``found`` without these;
    ``n``, the victims with different samples; ``verdict``; ``needed``, the victims that would do if
    it is "cannot tell", or "stronger attacks" if none that is compared is above blind.

    Args:
        study: with the expectations.
        scale: of the grids.
        tables: grid -> its scores.
        published: the paper's values (`gleak.figures.published`).
    """
    blank = dict.fromkeys(COLUMNS, "")
    rows = [
        {**blank, **expectation.model_dump(include=set(CLAIM)), **verdict}
        for expectation in study.claims(scale)
        for verdict in _Judge(study, scale, expectation, published).verdicts(
            tables[expectation.grid]
        )
    ]
    return pd.DataFrame(rows, columns=COLUMNS)


def _write(table: pd.DataFrame, page: str, folder: Path) -> None:
    with atomic(folder / "expectations.csv") as temporary:
        table.to_csv(temporary, index=False, lineterminator="\n")
    with atomic(folder / "expectations.md") as temporary:
        temporary.write_text(f"{verdicts_in_markdown(table)}\n", encoding="utf-8")
    with atomic(folder / "expectations.html") as temporary:
        temporary.write_text(page, encoding="utf-8")


def _stop_at_gates(table: pd.DataFrame) -> None:
    """Raise unless every gate holds: without data or with too few victims nothing is shown."""
    failed = table[table["verdict"] != "holds"]
    for row in records(failed):
        advice = f" ({describe_needed(row['needed'])})" if row["needed"] else ""
        text = f"{row['id']} ({row['group']}): {row['verdict']}{advice}; {row['measured']}"
        logger.warning("%s", text)
    gates = sorted(set(failed.loc[failed["level"] == "gate", "id"]))
    if gates:
        raise GleakError(f"gates not passed: {', '.join(gates)}; see expectations.md")


@dataclass(frozen=True)
class _Judge:
    """One claim of a study at a scale, with the paper's values."""

    study: Study
    scale: str
    claim: Expectation
    published: pd.DataFrame

    @property
    def names(self) -> AxisLabels:
        """Labels of the grid."""
        return self.study.grid(self.claim.grid, self.scale).names

    def verdicts(self, scores: pd.DataFrame) -> Iterator[Row]:
        """Yield one verdict per group; a single one without data if the grid has no such cells."""
        joined, names = join_cells(scores, self.names), self.names
        groups = self.claim.groups(names, cells_of(joined))
        if not groups:
            yield _describe([], [])
            return
        measured, reasons = measure(self.claim, joined), refusals(scores)
        along, _ = self.claim.compared
        varying = names.varying([cell for cells in groups for cell in cells])
        heading = [level for level in varying if level not in names.together(along)]
        for cells in groups:
            labels, compared = find_compared(self.claim, cells, names)
            yield {
                "group": ", ".join(names.heading(lv, cells[0].specs[lv]) for lv in heading),
                "measured": _list_means(labels, compared, measured, reasons),
                **self._verdict(compared, measured, labels),
            }

    def _verdict(
        self, cells: Sequence[Cell | None], measured: Measured, labels: Sequence[str]
    ) -> Row:
        evidence = collect(self.claim, cells, measured, self._papers(cells))
        verdict = _describe(evidence, labels)
        if evidence and none_above_blind(self.claim, cells, measured.all):
            return {**verdict, "verdict": "cannot tell", "needed": STRONGER}
        return verdict

    def _papers(self, cells: Sequence[Cell | None]) -> list[list[float]]:
        """Return the paper's values of the cells in each figure that shows the grid."""
        metric = str(read_metric(self.claim.metric))
        shown = [name for name, spec in self.study.figures.items() if self.claim.grid in spec.grids]
        tables = [self.published[self.published["figure"] == name] for name in shown]
        return [
            published_values(cells, metric, self.claim.statistic, table, self.names)
            for table in tables
        ]


def _describe(evidence: Sequence[Evidence], labels: Sequence[str]) -> dict[str, object]:
    """Return the texts of `EVIDENCE`."""
    verdict = judge(evidence)
    if not evidence:
        return {"verdict": verdict}
    each = [_describe_one(one, labels) for one in evidence]
    return {
        **{key: "; ".join(texts[key] for texts in each) for key in each[0]},
        "n": min(one.estimate.n for one in evidence),
        "verdict": verdict,
        "needed": _count_needed(evidence) if verdict == "cannot tell" else "",
    }


def _describe_one(evidence: Evidence, labels: Sequence[str]) -> dict[str, str]:
    found = evidence.found
    low, high = (format_number(end) for end in evidence.estimate.interval())
    return {
        "compared": _name(evidence.comparison, labels),
        "paper": format_number(evidence.paper),
        "ours": format_number(evidence.estimate.value),
        "interval": f"[{low}, {high}]",
        "found": format_number(math.nan if found is None else found.value),
    }


def _name(comparison: Comparison, labels: Sequence[str]) -> str:
    first = labels[comparison.cell] or "mean"
    if comparison.minus is None:
        return first
    times = "" if comparison.times == 1 else f"{format_number(comparison.times)} "
    return f"{first} - {times}{labels[comparison.minus]}"


def _count_needed(evidence: Sequence[Evidence]) -> str:
    if min(one.estimate.n for one in evidence) == 1:
        return f"at least {FEWEST}"
    number = needed(evidence)
    return NO_NUMBER if number is None else str(number)


def find_compared(
    expectation: Expectation, cells: Sequence[Cell], names: AxisLabels
) -> tuple[list[str], list[Cell | None]]:
    """Return the labels of the compared values and the cell of each, None if there is none.

    Args:
        expectation: the claim.
        cells: one of its groups.
        names: labels of the grid.
    """
    along, order = expectation.compared
    if not along:
        return [""] * len(cells), list(cells)
    by_spec = {cell.specs[along]: cell for cell in cells}
    specs = [(text, names.resolve(along, text)) for text in order]
    labels = [text if spec is None else names.label(along, spec) for text, spec in specs]
    return labels, [None if spec is None else by_spec.get(spec) for _, spec in specs]


def _list_means(
    labels: Sequence[str],
    cells: Sequence[Cell | None],
    measured: Measured,
    reasons: pd.Series,
) -> str:
    """Return the mean of each compared cell over its batches, with its label."""
    texts = []
    for label, cell in zip(labels, cells, strict=True):
        values = None if cell is None else measured.all.get(cell)
        reason = "" if cell is None else reasons.get(tuple(levels_of(cell).values()), "")
        mean = math.nan if values is None else values.mean
        texts.append(f"{label} {format_value(mean, reason)}".strip())
    return ", ".join(texts)
