"""Which samples of a batch figures of images show."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gleak.core.registry import parse
from gleak.figures.summary import records, select

if TYPE_CHECKING:
    import pandas as pd

    from gleak.experiments.figure_spec import Shown
    from gleak.figures.samples import SampleFigure

BEST, WORST = "best", "worst"
Values = Mapping[tuple[int, int], float]
"""Of some samples, by victim and sample, the value of a figure's metric."""


@dataclass(frozen=True)
class Pick:
    """One sample that is shown.

    Args:
        sample: its number in the batch.
        place: best, worst, or "" where samples are shown as they come.
    """

    sample: int
    place: str = ""


def read_values(figure: SampleFigure, shown: Shown, scores: pd.DataFrame) -> Values:
    """The value of the figure's metric for each sample of a cell that has one."""
    metric = str(parse("metric", figure.metric))
    rows = select(scores, {**shown.row, "metric": metric}).dropna(subset=["sample", "value"])
    return {(int(row["victim"]), int(row["sample"])): row["value"] for row in records(rows)}


def pick(figure: SampleFigure, values: Values, victim: int, samples: int) -> list[Pick]:
    """The samples of a victim that are shown, in this order: the first, or the best, the worst.

    Args:
        figure: says which and how many; of ``both`` so many of each, at most half of all.
        values: of its metric; a sample without one counts as worse than all others.
        victim: whose.
        samples: how many there are.
    """
    count = min(figure.samples, samples)
    if figure.pick == "first":
        return [Pick(sample) for sample in range(count)]
    sign = -1 if parse("metric", figure.metric).better == "higher" else 1
    ranked = sorted(range(samples), key=lambda s: sign * values.get((victim, s), sign * math.inf))
    best = [Pick(sample, BEST) for sample in ranked]
    worst = [Pick(sample, WORST) for sample in reversed(ranked)]
    if figure.pick == "both":
        half = min(count, max(1, samples // 2))
        return [*best[:half], *worst[:half]]
    return {BEST: best, WORST: worst}[figure.pick][:count]
