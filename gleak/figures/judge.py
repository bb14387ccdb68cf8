"""Verdicts on the expectations of a study: a table, and a page with links to the figures."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import get_args

import pandas as pd

from gleak.artifacts.atomic import atomic
from gleak.core.errors import GleakError
from gleak.core.markup import table_in_markdown, to_markdown
from gleak.core.numbers import format_number, format_value
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
from gleak.figures.statistics import (
    CELL,
    SETTING,
    Row,
    cells_of,
    join_cells,
    records,
    refusals,
    summarise,
)
from gleak.metrics.score_table import read_scores
from gleak.studies.axis_labels import BLIND, CONTROLS, AxisLabels, read_metric
from gleak.studies.cell import Cell, levels_of
from gleak.studies.claims import Expectation, Verdict
from gleak.studies.grid import Grid
from gleak.studies.study import Study

logger = logging.getLogger(__name__)

CLAIM = ["id", "level", "claim", "source"]
EVIDENCE = ["compared", "paper", "ours", "interval", "found", "n", "verdict", "needed"]
COLUMNS = [*CLAIM, "group", "measured", *EVIDENCE]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
FIRST = ["verdict", "needed"]
NUMBERS = ["compared", "paper", "ours", "interval", "found"]
HEADINGS = ["verdict", "claim", "source", "cells", "metric", "measured", *NUMBERS, "n", "figures"]
NO_NUMBER = "none"
"""In place of the number of victims that would do: the estimate is at the end of the range."""
STRONGER = "stronger attacks"
"""In place of the number of victims: no compared attack is above blind."""
LABELS = {"interval": "95% interval", "found": "found only"}


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
    texts = {
        "csv": table.to_csv(index=False, lineterminator="\n"),
        "md": f"{verdicts_in_markdown(table)}\n",
        "html": write_page(study, scale, table),
    }
    for suffix, text in texts.items():
        with atomic(folder / f"expectations.{suffix}") as temporary:
            temporary.write_text(text, encoding="utf-8")
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
            evidence = collect(self.claim, compared, measured, self._papers(compared))
            verdict = _describe(evidence, labels)
            if evidence and none_above_blind(self.claim, compared, measured.all):
                verdict |= {"verdict": "cannot tell", "needed": STRONGER}
            yield {
                "group": ", ".join(names.heading(lv, cells[0].specs[lv]) for lv in heading),
                "measured": _list_means(labels, compared, measured, reasons),
                **verdict,
            }

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
    texts: dict[str, list[str]] = {}
    for one in evidence:
        low, high = (format_number(end) for end in one.estimate.interval())
        compared, found = one.comparison, one.found
        name = labels[compared.cell] or "mean"
        if compared.minus is not None:
            times = "" if compared.times == 1 else f"{format_number(compared.times)} "
            name = f"{name} - {times}{labels[compared.minus]}"
        numbers = {
            "compared": name,
            "paper": format_number(one.paper),
            "ours": format_number(one.estimate.value),
            "interval": f"[{low}, {high}]",
            "found": format_number(math.nan if found is None else found.value),
        }
        for key, text in numbers.items():
            texts.setdefault(key, []).append(text)
    n = min(one.estimate.n for one in evidence)
    advice = ""
    if verdict == "cannot tell":
        number = None if n == 1 else needed(evidence)
        advice = f"at least {FEWEST}" if n == 1 else NO_NUMBER if number is None else str(number)
    joined = {key: "; ".join(several) for key, several in texts.items()}
    return {**joined, "n": n, "verdict": verdict, "needed": advice}


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


def verdicts_in_markdown(table: pd.DataFrame) -> str:
    """Return verdicts as a table in Markdown: the verdict first, the identifier last.

    Args:
        table: verdicts, from `judge_study`.
    """
    others = table.columns.drop([*FIRST, "id"])
    return table_in_markdown(table[[*FIRST, *others, "id"]].astype(str).map(to_markdown))


def write_page(study: Study, scale: str, table: pd.DataFrame) -> str:
    """Return a page with a sentence of counts and one table row per comparison.

    Args:
        study: with the claims and the figures.
        scale: of the grids.
        table: verdicts, from `judge_claims`.
    """
    title = escape(f"{study.name.upper()}: {study.title}")
    number = table["verdict"].value_counts()
    counts = ", ".join(f"{verdict}: {number.get(verdict, 0)}" for verdict in VERDICTS)
    waiting = table[table["verdict"] == "cannot tell"]
    victims = pd.to_numeric(waiting["needed"], errors="coerce").dropna()
    advice = (
        f" about {victims.median():.0f} victims (median) would do, if means and variances stayed "
        "as they are; each row says how many."
        if len(victims)
        else " their variance is unknown, or no difference was measured."
    )
    why = (
        f" Cannot tell: there are fewer than {FEWEST} victims (a trained model counts as one), or "
        f"the interval is on both sides of what is claimed;{advice}"
    )
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<meta charset="utf-8">\n<title>{title}</title>\n'
        f"<section>\n<h2>{title}</h2>\n<p>{escape(study.paper)}. {len(table)} comparisons at the "
        f"scale {scale} ({counts}).{why if len(waiting) else ''}</p>\n"
        f"{_tabulate(study, scale, table)}\n</section>\n</html>\n"
    )


def _tabulate(study: Study, scale: str, table: pd.DataFrame) -> str:
    """Return the table as HTML."""
    claims = study.claims(scale)
    links = {claim.id: _links(study, claim.grid) for claim in claims}
    metrics = {c.id: study.grid(c.grid, scale).names.metric(c.metric) for c in claims}
    rows = table.assign(
        claim=table["claim"].map(escape),
        source=table["source"].map(escape),
        verdict=[_mark(row["verdict"], row["needed"]) for row in records(table)],
        cells=table["group"].map(escape),
        metric=table["id"].map(metrics).map(escape),
        measured=table["measured"].map(escape),
        **{name: table[name].map(escape).str.replace("; ", "<br>") for name in NUMBERS},
        figures=table["id"].map(links),
    )
    shown = rows[HEADINGS].rename(columns=LABELS)
    return str(shown.to_html(escape=False, index=False, border=0, justify="left"))


def _mark(verdict: str, needed: str) -> str:
    """Return a verdict as HTML, with the number of victims that would do if it cannot tell."""
    span = f'<span class="{verdict.split()[0]}">{verdict}</span>'
    return f"{span} ({describe_needed(needed)})" if needed else span


def describe_needed(needed: str) -> str:
    """Return what a verdict needs, a number of victims or stronger attacks, in a sentence."""
    if needed == STRONGER:
        return "no attack is above blind; stronger ones would"
    return "no number of victims would" if needed == NO_NUMBER else f"{needed} victims would"


def _links(study: Study, grid: str) -> str:
    """Return links to the figures that show the scores of a grid."""
    links = []
    for name, spec in study.figures.items():
        if grid in spec.grids:
            label = escape(spec.reproduces.partition(" (")[0] or spec.title or name)
            file = f"{name}{spec.suffixes[0]}"
            links.append(f'<a href="{file}" title="{escape(spec.title)}">{label}</a>')
    return ", ".join(links)


def warn_of_weak_attacks(study: Study, scale: str, tables: Mapping[str, pd.DataFrame]) -> None:
    """Log a warning for each attack that is unexpectedly no better than blind, or better than it.

    Args:
        study: with the declarations (``no_better_than_blind``).
        scale: of the grids.
        tables: grid -> its scores.
    """
    for name, table in tables.items():
        for warning in _warnings(study.grid(name, scale), table):
            logger.warning("grid %s: %s", name, warning)


def compare_with_blind(scores: pd.DataFrame, names: AxisLabels) -> pd.DataFrame:
    """Return the mean squared errors of attacks and of the blind control of their setting.

    Args:
        scores: of a grid, in the form of `gleak.metrics.score_table`.
        names: of the grid.

    Returns:
        One row per attacked cell that has both: ``cell``, ``ours``, ``blind``.
    """
    errors = summarise(scores, read_metric("mse"))[[*CELL, "ours"]]
    blind = errors[errors["attack"] == BLIND].drop_duplicates(SETTING)
    attacked = join_cells(errors[~errors["attack"].isin(CONTROLS)], names)
    both = attacked.merge(blind[[*SETTING, "ours"]].rename(columns={"ours": "blind"}), on=SETTING)
    return both.dropna(subset=["ours", "blind"])[["cell", "ours", "blind"]]


def _warnings(grid: Grid, scores: pd.DataFrame) -> Iterator[str]:
    compared = records(compare_with_blind(scores, grid.names))
    declared = {cell for weak in grid.weak for cell in weak.cells}
    varying = grid.names.varying([row["cell"] for row in compared])
    for row in compared:
        label = _label(row["cell"], grid.names, varying)
        values = f"mean mse {row['ours']:.3g}, {BLIND} {row['blind']:.3g}"
        if row["ours"] >= row["blind"] and row["cell"] not in declared:
            yield (
                f"{label} is no better than {BLIND}, which uses no update ({values}); give it "
                "more iterations, or say why in no_better_than_blind"
            )
        if row["ours"] < row["blind"] and row["cell"] in declared:
            yield f"{label} is declared in no_better_than_blind, but is better ({values})"


def _label(cell: Cell, names: AxisLabels, varying: list[str]) -> str:
    """Return the labels of the levels that differ in the grid, the attack always among them."""
    levels = dict.fromkeys([*varying, "attack"])
    return ", ".join(names.heading(level, cell.specs[level]) for level in levels)
