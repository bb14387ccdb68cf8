"""Verdicts on the expectations of a study: a table, and a page with links to the figures."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import get_args

import numpy as np
import pandas as pd

from gleak.artifacts.atomic import atomic
from gleak.artifacts.dataset import read_sizes
from gleak.core.errors import GleakError
from gleak.core.markup import table_in_markdown, to_markdown
from gleak.core.numbers import format_number, format_value
from gleak.figures.claim_protocol import changes, describe_protocol
from gleak.figures.evidence import (
    CellValues,
    Evidence,
    GridValues,
    SplitSizes,
    center_estimate,
    collect,
    error_of,
    judge,
    measure,
    needed,
    none_above_blind,
)
from gleak.figures.intervals import CONFIDENCE, FEWEST, Overlapping
from gleak.figures.leaks import NO_CONTROL, UNDER_ATTACKED, Finding, find_leaks
from gleak.figures.needs import (
    BEYOND_CHANCE,
    CONTROL,
    LONGER,
    MORE_SAMPLES,
    NO_NUMBER,
    OWN_PROTOCOL,
    STRONGER,
    describe_needed,
)
from gleak.figures.published import (
    INCOMPARABLE,
    empty_published,
    published_values,
    read_published,
    why_incomparable,
)
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
from gleak.figures.verdict_table import read_headlines, tabulate_recorded, tabulate_verdicts
from gleak.metrics.score_table import read_scores
from gleak.studies.axis_labels import BLIND, CONTROLS, AxisLabels, read_metric
from gleak.studies.cell import Cell, levels_of
from gleak.studies.claims import Expectation, Hides, Verdict
from gleak.studies.grid import Grid
from gleak.studies.study import Study

logger = logging.getLogger(__name__)

CLAIM = ["id", "level", "claim", "source"]
EVIDENCE = ["compared", "paper", "ours", "interval", "found", "n", "verdict", "needed"]
AFTER = ["protocol", "corrected"]
COLUMNS = [*CLAIM, "group", "measured", *EVIDENCE, *AFTER]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
NUMBERS = EVIDENCE[:5]
ERROR = "error"
OURS = "ours"
SURVIVES: Mapping[bool, str] = {True: "stands", False: "does not stand"}
"""Whether a verdict stands with Holm's correction over the claims of its study."""


def judge_study(
    study: Study,
    scale: str,
    scores: Mapping[str, Path],
    folder: Path,
    published: Path | None = None,
    recorded: Path | None = None,
    datasets: Iterable[Path] = (),
) -> pd.DataFrame:
    """Check every expectation of a study against our scores, and return the table of verdicts.

    Writes ``expectations.csv``, ``expectations.md`` and ``expectations.html``: one row per
    expectation and group of cells that it compares (a claim may hold on MNIST and fail on LFW).

    Args:
        study: with the expectations.
        scale: of the grids.
        scores: grid -> its table (`gleak.figures.tabulate`).
        folder: of the outputs.
        published: the paper's values; None if there are none.
        recorded: the recorded verdicts on its headline claims; None if there are none.
        datasets: prepared datasets whose specs do not tell their sizes, in folders of their names.

    Raises:
        GleakError: if a gate does not hold, after all files are written.
    """
    tables = {grid: read_scores([path]) for grid, path in scores.items()}
    papers = empty_published() if published is None else read_published(published)
    table = judge_claims(study, scale, tables, papers, read_sizes(datasets))
    warn_of_weak_attacks(study, scale, tables)
    texts = {
        "csv": table.to_csv(index=False, lineterminator="\n"),
        "md": f"{verdicts_in_markdown(table)}\n",
        "html": write_page(study, scale, table, recorded),
    }
    for suffix, text in texts.items():
        with atomic(folder / f"expectations.{suffix}") as temporary:
            temporary.write_text(text, encoding="utf-8")
    failed = table[table["verdict"] != "holds"]
    for row in records(failed):
        advice = f" ({describe_needed(row['needed'])})" if row["needed"] else ""
        text = f"{row['id']} ({row['group']}): {row['verdict']}{advice}; {row['measured']}"
        logger.warning("%s", text)
    gates = sorted(set(failed.loc[failed["level"] == "gate", "id"]))
    if gates:
        raise GleakError(f"gates not passed: {', '.join(gates)}; see expectations.md")
    return table


def judge_claims(
    study: Study,
    scale: str,
    tables: Mapping[str, pd.DataFrame],
    published: pd.DataFrame,
    sizes: SplitSizes = MappingProxyType({}),
) -> pd.DataFrame:
    """Return the verdicts: one row per expectation and group of cells that it compares.

    Columns besides those of the claim: ``measured``, the mean of each cell; for each comparison of
    the claim, one after another with semicolons, ``compared``, the number ``paper`` gives, ``ours``
    with its 95% ``interval``, where samples not found count as blind, and ``found`` without these;
    ``n``, the victims with different samples; ``verdict``; ``needed``, the victims that would do if
    it is "cannot tell", or what else; ``protocol``, the paper's or what was changed; ``corrected``,
    whether the verdict stands with Holm's correction.

    Args:
        study: with the expectations.
        scale: of the grids.
        tables: grid -> its scores.
        published: the paper's values (`gleak.figures.published`).
        sizes: of datasets whose specs do not tell them.
    """
    blank = dict.fromkeys(COLUMNS, "")
    papers = {claim.id: claim.metric for claim in study.claims("paper")}
    rows = [
        {**blank, **claim.model_dump(include=set(CLAIM)), **verdict}
        for claim in study.claims(scale)
        for verdict in _verdicts(
            Judged(
                claim,
                study.grid(claim.grid, scale),
                study.grid(claim.grid, "paper"),
                papers[claim.id],
            ),
            tables[claim.grid],
            [
                published[published["figure"] == name]
                for name, figure in study.figures.items()
                if claim.grid in figure.grids
            ],
            sizes,
        )
    ]
    table = pd.DataFrame(rows, columns=[*COLUMNS, ERROR])
    table["corrected"] = holm(table[ERROR])
    return table[COLUMNS]


def holm(errors: pd.Series) -> pd.Series:
    """Return whether verdicts stand with Holm's correction; "" for those that are none.

    Args:
        errors: smallest error at which each verdict stands; NaN where there is none, of which the
            number counts too.
    """
    ordered = errors.fillna(1.0).sort_values(kind="stable")
    allowed = (1 - CONFIDENCE) / (len(ordered) - np.arange(len(ordered)))
    stands = pd.Series((ordered <= allowed).cummin(), ordered.index).reindex(errors.index)
    return stands.map(SURVIVES).where(errors.notna(), "")


@dataclass(frozen=True)
class Judged:
    """A claim with the grid that is judged, the same at the paper's scale, and its metric there."""

    claim: Expectation
    grid: Grid
    paper: Grid
    metric: str

    @property
    def unnamed_levels(self) -> list[str]:
        """Levels at which the paper's grid has several values and the claim names none."""
        names = self.paper.names
        named = frozenset[str]().union(*map(names.together, self.claim.where))
        return [level for level in names.varying(self.paper.cells) if level not in named]

    def changes(self, cells: Sequence[Cell | None]) -> dict[str, list[str]]:
        """Return what was changed of the paper's protocol in some cells."""
        there = [cell for cell in cells if cell is not None]
        names, theirs = self.grid.names, self.paper.names
        return changes(there, names, theirs, self.claim.metric, self.metric)


def _verdicts(
    judged: Judged, scores: pd.DataFrame, published: Sequence[pd.DataFrame], sizes: SplitSizes
) -> Iterator[Row]:
    """Yield one verdict per group; a single one without data if the grid has no such cells.

    The paper's values are those of each figure that shows the grid.
    """
    claim, grid = judged.claim, judged.grid
    names = grid.names
    joined = join_cells(scores, names)
    groups = claim.groups(names, cells_of(joined))
    if not groups:
        yield _describe([], [], papers_protocol=False)
        return
    measured, reasons = measure(claim, joined, sizes), refusals(scores)
    metric = str(read_metric(claim.metric))
    findings: Mapping[Cell, Finding] = {}
    if grid.gates is not None and grid.gates.margin(metric) is not None:
        findings = find_leaks(grid.gates, metric, measured.all, names)
    along, _ = claim.compared
    varying = names.varying([cell for cells in groups for cell in cells])
    shown = {*varying, *judged.unnamed_levels} - names.together(along)
    heading = [level for level in names.axes if level in shown]
    for cells in groups:
        labels, compared = find_compared(claim, cells, names)
        papers = [
            published_values(compared, metric, claim.statistic, table, names) for table in published
        ]
        evidence = collect(claim, compared, measured, papers)
        changed = judged.changes(compared)
        reasons_of = (
            why_incomparable(compared, metric, claim.statistic, table, names) for table in published
        )
        if told := list(dict.fromkeys(chain.from_iterable(reasons_of))):
            changed[INCOMPARABLE] = told
        verdict = _describe(evidence, labels, papers_protocol=claim.of_paper and not changed)
        if evidence and (missing := _missing(claim, compared, measured, findings, changed)):
            verdict |= {"verdict": "cannot tell", "needed": missing, ERROR: math.nan}
        yield {
            "protocol": describe_protocol(changed) if claim.of_paper else OURS,
            "group": ", ".join(names.heading(lv, cells[0].specs[lv]) for lv in heading),
            "measured": _list_means(labels, compared, measured, reasons),
            **verdict,
        }


def _missing(
    claim: Expectation,
    compared: Sequence[Cell | None],
    measured: GridValues,
    findings: Mapping[Cell, Finding],
    changed: Collection[str],
) -> str:
    """Return what a claim needs besides victims before there is a verdict, "" for nothing."""
    if not claim.papers_only.isdisjoint(changed):
        return OWN_PROTOCOL
    if none_above_blind(claim, compared, measured.all):
        return STRONGER
    values = [measured.all[cell] for cell in compared if cell is not None and cell in measured.all]
    if any(_ended_by_budget(claim, each) for each in values):
        return LONGER
    chance = claim.chance
    if isinstance(chance, float) and any(_is_chance(chance, each) for each in values):
        return BEYOND_CHANCE
    found = [findings[cell] for cell in compared if cell is not None and cell in findings]
    if any(finding.leak == UNDER_ATTACKED for finding in found):
        return UNDER_ATTACKED
    hidden = isinstance(claim, Hides)
    return CONTROL if hidden and any(each.reason == NO_CONTROL for each in found) else ""


def _ended_by_budget(claim: Expectation, values: CellValues) -> bool:
    """Return True if a search's cost is compared that its budget ended for half of the victims."""
    cost, attack = read_metric(claim.metric).name, values.attack
    if attack is None or cost not in ("iterations", "evaluations"):
        return False
    whole = attack.cost().evaluations
    budget = whole if cost == "evaluations" else getattr(attack, "iterations", math.inf)
    return values.center >= budget > 0


def _is_chance(chance: float, values: CellValues) -> bool:
    low, high = center_estimate(values).interval()
    return low <= chance <= high


def _describe(
    evidence: Sequence[Evidence], labels: Sequence[str], papers_protocol: bool
) -> dict[str, object]:
    """Return the texts of `EVIDENCE`, and the smallest error at which the verdict stands."""
    verdict = judge(evidence, papers_protocol)
    if not evidence:
        return {"verdict": verdict}
    texts: dict[str, list[str]] = {name: [] for name in NUMBERS}
    for one in evidence:
        low, high = (format_number(end) for end in one.interval)
        compared, found = one.comparison, one.found
        name = labels[compared.cell] or "mean"
        if compared.minus is not None:
            times = "" if compared.times == 1 else f"{format_number(compared.times)} "
            name = f"{name} - {times}{labels[compared.minus]}"
        texts["compared"].append(name)
        texts["paper"].append(format_number(one.paper))
        texts["ours"].append(format_number(one.estimate.value))
        texts["interval"].append(f"[{low}, {high}]")
        texts["found"].append(format_number(math.nan if found is None else found.value))
    n = min(one.estimate.n for one in evidence)
    advice = ""
    if verdict == "cannot tell":
        advice = _advise(evidence, n)
    joined = {key: "; ".join(several) for key, several in texts.items()}
    error = error_of(evidence, verdict)
    return {**joined, "n": n, "verdict": verdict, "needed": advice, ERROR: error}


def _advise(evidence: Sequence[Evidence], n: int) -> str:
    """Return the number of victims that would do for a verdict, or what else."""
    if any(isinstance(one.estimate, Overlapping) for one in evidence):
        return MORE_SAMPLES
    if n == 1:
        return f"at least {FEWEST}"
    number = needed(evidence)
    return NO_NUMBER if number is None else str(number)


def find_compared(
    expectation: Expectation, cells: Sequence[Cell], names: AxisLabels
) -> tuple[list[str], list[Cell | None]]:
    """Return the labels of the values compared in a group, and the cell of each, None if none."""
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
    measured: GridValues,
    reasons: pd.Series,
) -> str:
    """Return the mean of each compared cell over its batches, with its label."""
    texts = []
    for label, cell in zip(labels, cells, strict=True):
        values = None if cell is None else measured.all.get(cell)
        reason = "" if cell is None else reasons.get(tuple(levels_of(cell).values()), "")
        mean = math.nan if values is None else values.center
        texts.append(f"{label} {format_value(mean, reason)}".strip())
    return ", ".join(texts)


def verdicts_in_markdown(table: pd.DataFrame) -> str:
    """Return verdicts as a table in Markdown: the verdict first, the identifier last."""
    first = ["verdict", "needed"]
    others = table.columns.drop([*first, "id"])
    return table_in_markdown(table[[*first, *others, "id"]].astype(str).map(to_markdown))


def write_page(study: Study, scale: str, table: pd.DataFrame, recorded: Path | None = None) -> str:
    """Return a page with a sentence of counts and one row per verdict of `judge_claims`.

    It begins with the recorded headlines if there are any, and the run's verdicts beside them.
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
    headlines = ""
    if recorded is not None:
        told = tabulate_recorded(read_headlines(recorded), table, scale)
        headlines = f'<section class="headlines">\n<h2>{title}</h2>\n{told}\n</section>\n'
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<meta charset="utf-8">\n<title>{title}</title>\n'
        f"{headlines}<section>\n<h2>{title}</h2>\n<p>{escape(study.paper)}. {len(table)} "
        f"comparisons at the scale {scale} ({counts}).{why if len(waiting) else ''}</p>\n"
        f"{_tabulate(study, scale, table)}\n</section>\n</html>\n"
    )


def in_words(study: Study, scale: str, verdicts: pd.DataFrame) -> pd.DataFrame:
    """Return verdicts with the label of their ``metric``, and what they need in words."""
    claims = study.claims(scale)
    metrics = {c.id: study.grid(c.grid, scale).names.metric(c.metric) for c in claims}
    needed = [describe_needed(text) if text else "" for text in verdicts["needed"]]
    return verdicts.assign(metric=verdicts["id"].map(metrics), needed=needed)


def _tabulate(study: Study, scale: str, table: pd.DataFrame) -> str:
    """Return the table as HTML, with links to the figures."""
    claims = study.claims(scale)
    links = {claim.id: _links(study, claim.grid) for claim in claims}
    return tabulate_verdicts(
        in_words(study, scale, table), {"figures": lambda row: links[row["id"]]}
    )


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

    What is expected is declared in the study (``no_better_than_blind``). Tables are by grid.
    """
    for name, table in tables.items():
        for warning in _warnings(study.grid(name, scale), table):
            logger.warning("grid %s: %s", name, warning)


def compare_with_blind(scores: pd.DataFrame, names: AxisLabels) -> pd.DataFrame:
    """Return the mean squared errors of attacks and of the blind control of their setting.

    There is one row per attacked cell that has both: ``cell``, ``ours``, ``blind``.
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
    levels = dict.fromkeys([*varying, "attack"])
    for row in compared:
        label = ", ".join(grid.names.heading(level, row["cell"].specs[level]) for level in levels)
        values = f"mean mse {row['ours']:.3g}, {BLIND} {row['blind']:.3g}"
        if row["ours"] >= row["blind"] and row["cell"] not in declared:
            yield (
                f"{label} is no better than {BLIND}, which uses no update ({values}); give it "
                "more iterations, or say why in no_better_than_blind"
            )
        if row["ours"] < row["blind"] and row["cell"] in declared:
            yield f"{label} is declared in no_better_than_blind, but is better ({values})"
