"""Every claim of every study holds on scores that support it and fails on others."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from gleak.figures import intervals
from gleak.figures.evidence import CellValues, GridValues, collect, effect, judge, shared_batches
from gleak.figures.judge import find_compared
from gleak.figures.published import published_values, read_published
from gleak.studies.axis_labels import read_metric
from gleak.studies.cell import Cell
from gleak.studies.claims import ClaimedRange, Expectation
from gleak.studies.study import Study, load_study

STUDIES = sorted((Path(__file__).parents[2] / "studies").glob("*.yaml"))
OF_PAPERS = [path for path in STUDIES if (path.parent / "published" / f"{path.stem}.csv").is_file()]
VICTIMS = 100
SCALES = {"psnr": 40.0, "iterations": 300.0, "seconds": 1000.0, "unique_samples": 74.0}
"""Largest value of a metric where it is not 1."""
read_study = cache(load_study)


def scale_of(claim: Expectation) -> float:
    """Largest value of a claim's metric."""
    return SCALES.get(read_metric(claim.metric).name.removesuffix("_oracle_sign"), 1.0)


def values_of(
    cell: Cell, claim: Expectation, mean: float, random: np.random.Generator
) -> CellValues:
    """Values of the victims of one cell with this mean; one where there are no clients."""
    binary = read_metric(claim.metric).binary
    count = VICTIMS if "client" in cell.specs else 1
    if binary:
        values = np.arange(count) < round(mean * count)
    else:
        values = mean + 0.01 * scale_of(claim) * random.normal(size=count)
    return CellValues(pd.Series(values, dtype=float), shared_batches(cell), binary)


def compared_cells(study: Study, claim: Expectation) -> list[Cell]:
    """The cells of one group of a claim, at the first scale that has all of them."""
    for scale in ("quick", "small", "paper"):
        grid = study.grid(claim.grid, scale)
        for group in claim.groups(grid.names, grid.names.cells(grid.scored)):
            _, cells = find_compared(claim, group, grid.names)
            if None not in cells:
                return [cell for cell in cells if cell is not None]
    raise AssertionError(f"{claim.id} compares cells that no scale has")


def candidates(claim: Expectation, count: int) -> list[np.ndarray]:
    """Means up to the largest value: rising, falling, equal, apart from the first, tenfold."""
    shapes = [np.linspace(0, 1, count), np.full(count, 0.5), np.ones(count)]
    shapes.append(np.where(np.arange(count) == 0, 0.0, 1.0))
    shapes.append(10.0 ** (np.arange(count) - count + 1))
    return [scale_of(claim) * means for shape in shapes for means in (shape, 1 - shape)]


def clearance(claim: Expectation, means: np.ndarray) -> float:
    """By how much a claim is true of exact means; negative if it is false."""
    return min(
        min(value - each.low, each.high - value)
        for each in claim.comparisons
        for value in [effect(each, means.tolist())]
    )


def verdict_on(claim: Expectation, cells: list[Cell], means: np.ndarray) -> str:
    random = np.random.default_rng(0)
    pairs = zip(cells, means, strict=True)
    values = {cell: values_of(cell, claim, mean, random) for cell, mean in pairs}
    return judge(collect(claim, cells, GridValues(values, values)))


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enough for means that differ by many standard errors."""
    monkeypatch.setattr(intervals, "RESAMPLES", 199)


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_every_claim_can_hold_and_fail(path: Path) -> None:
    """Except those on models and broadcast parameters, of which each cell has one."""
    study = read_study(path)
    for claim in study.expectations:
        cells = compared_cells(study, claim)
        ranked = sorted(candidates(claim, len(cells)), key=lambda means: clearance(claim, means))
        verdicts = [verdict_on(claim, cells, means) for means in (ranked[-1], ranked[0])]
        one = "client" not in cells[0].specs
        assert verdicts == (["cannot tell"] * 2 if one else ["holds", "fails"]), claim.id


def published_effects(
    study: Study, claim: Expectation, papers: pd.DataFrame
) -> Iterator[tuple[ClaimedRange, float]]:
    """The paper's number for each comparison, from every figure and table that has it."""
    grid = study.grid(claim.grid, "paper")
    names, metric = grid.names, str(read_metric(claim.metric))
    shown = [name for name, figure in study.figures.items() if claim.grid in figure.grids]
    for group in claim.groups(names, names.cells(grid.scored)):
        _, cells = find_compared(claim, group, names)
        for name in shown:
            table = papers[papers["figure"] == name]
            means = published_values(cells, metric, claim.statistic, table, names)
            yield from ((each, effect(each, means)) for each in claim.comparisons)


@pytest.mark.parametrize("path", OF_PAPERS, ids=lambda path: path.stem)
def test_claims_are_true_of_the_papers_numbers_and_of_half_of_its_differences(path: Path) -> None:
    study = read_study(path)
    papers = read_published(path.parent / "published" / f"{path.stem}.csv")
    checked = 0
    for claim in study.claims("paper"):
        for comparison, value in published_effects(study, claim, papers):
            least = value / 2 if comparison.strict and comparison.times == 1 else value
            if not math.isnan(value):
                assert comparison.contains(least, least), (claim.id, value)
                checked += 1
    assert checked > 10
