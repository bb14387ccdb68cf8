"""Every claim of every study holds on scores that support it and fails on others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from gleak.experiments.axis_labels import read_metric
from gleak.experiments.cell import Cell
from gleak.experiments.claims import Expectation
from gleak.experiments.refusals import levels_of
from gleak.experiments.study import Study, load_study
from gleak.figures.evidence import collect, judge, measure
from gleak.figures.judge import find_compared
from gleak.metrics.score_table import COLUMNS, TYPES

STUDIES = sorted((Path(__file__).parents[2] / "studies").glob("*.yaml"))
VICTIMS = 60
SCALES = {"psnr": 40.0, "iterations": 1000.0, "seconds": 100.0}
"""Largest value of a metric where it is not 1."""
NEVER_HOLD = {"records_recovered", "gaussian_noise_suffices", "laplace_noise_suffices"}
"""Claims that a rate is 0 or 1, which no number of victims shows."""
NEVER_TELL = {"noise_costs_accuracy", "compression_is_free"}
"""Claims on models, of which each cell has one."""


def values_of(
    cell: Cell, claim: Expectation, mean: float, random: np.random.Generator
) -> pd.DataFrame:
    """Scores of one cell with this mean, of victims that all succeeded."""
    metric = read_metric(claim.metric)
    client = cell.specs.get("client")
    count = 1 if client is None else VICTIMS * client.repeats
    if metric.binary:
        values = np.arange(count) < round(mean * count)
    else:
        values = mean + 0.02 * SCALES.get(metric.name, 1) * random.normal(size=count)
    rows = [
        {"victim": victim, "sample": 0, "metric": name, "value": float(value)}
        for name, column in {"success_content": np.ones(count), str(metric): values}.items()
        for victim, value in enumerate(column)
    ]
    fixed = {**levels_of(cell), "status": "ok", "grants": "", "reason": ""}
    table = pd.DataFrame([{**fixed, **row} for row in rows])[list(COLUMNS)].astype(TYPES)
    return table.assign(cell=[cell] * len(rows))


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
    """Means between 0 and the largest value: rising, falling, equal, or apart from the first."""
    shapes = [np.linspace(0, 1, count), np.full(count, 0.5), np.ones(count)]
    shapes.append(np.where(np.arange(count) == 0, 0.0, 1.0))
    scale = SCALES.get(read_metric(claim.metric).name, 1.0)
    return [scale * means for shape in shapes for means in (shape, 1 - shape)]


def clearance(claim: Expectation, means: np.ndarray) -> float:
    """By how much a claim is true of exact means; negative if it is false."""
    return min(
        min(value - each.low, each.high - value)
        for each in claim.comparisons
        for value in [means[each.cell] - (0.0 if each.minus is None else means[each.minus])]
    )


def verdict_on(claim: Expectation, cells: list[Cell], means: np.ndarray) -> str:
    random = np.random.default_rng(0)
    pairs = zip(cells, means, strict=True)
    scores = pd.concat([values_of(cell, claim, mean, random) for cell, mean in pairs])
    return judge(collect(claim, cells, measure(claim, scores)))


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_every_claim_can_hold_and_fail(path: Path) -> None:
    study = load_study(path)
    verdicts = {}
    for claim in study.expectations:
        cells = compared_cells(study, claim)
        ranked = sorted(candidates(claim, len(cells)), key=lambda means: clearance(claim, means))
        verdicts[claim.id] = [verdict_on(claim, cells, means) for means in (ranked[-1], ranked[0])]
    expected = {
        claim.id: ["cannot tell"] * 2
        if claim.id in NEVER_TELL
        else ["cannot tell" if claim.id in NEVER_HOLD else "holds", "fails"]
        for claim in study.expectations
    }
    assert verdicts == expected
