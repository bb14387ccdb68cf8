"""Single samples of some victims: strips of images, from the truth to the result."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from gleak.artifacts.private import Private
from gleak.artifacts.reconstruction import Reconstruction
from gleak.core.errors import IncompatibleError, SpecError
from gleak.core.lazy import pandas as pd
from gleak.core.spec import parameter
from gleak.figures.statistics import records, select
from gleak.metrics.reconstruction.assignment import UNASSIGNED, match_samples
from gleak.studies.axis_labels import AxisLabels, read_metric
from gleak.studies.cell import LEVELS, Cell, levels_of
from gleak.studies.figure_spec import GridFigure, Shown


class SampleFigure(GridFigure):
    """Base class of the kinds that show single samples of some victims."""

    needs: ClassVar[Literal["scores", "reconstructions"]] = "reconstructions"
    shows_controls: ClassVar[bool] = False

    victims: int = parameter(4, "victims shown of each cell, the first ones", ge=1)
    samples: int = parameter(1, "samples shown of each victim", ge=1)
    pick: Literal["first", "best", "worst", "both"] = parameter(
        "first", "which samples; both: so many of the best, and then of the worst"
    )
    metric: str = parameter("mse", "number under each result, by which the best and worst are told")

    @property
    def used_metrics(self) -> Sequence[str]:
        return [self.metric]

    @property
    def used_axes(self) -> Sequence[str]:
        return LEVELS

    @property
    def course(self) -> int | None:
        """Number of snapshots shown besides the start; None if only the result is shown."""
        return None

    def check(self, names: AxisLabels, cells: Sequence[Cell]) -> None:
        super().check(names, cells)
        if read_metric(self.metric).per != "sample":
            raise SpecError(f"metric {self.metric!r} is not of single samples; choose mse or ssim")
        for cell in self.chosen(names, cells):
            if (modality := cell.dataset.modality) != "image":
                raise SpecError(
                    f"dataset {str(cell.dataset)!r} has {modality} data, which have no images to "
                    "show; choose one of images under where, or another kind of figure"
                )


TRUTH, START, SNAPSHOT, RESULT = "truth", "start", "snapshot", "result"
BEST, WORST = "best", "worst"
Values = Mapping[tuple[int, int], float]
"""Values of a figure's metric, by victim and sample."""


@dataclass(frozen=True)
class Picture:
    """One image of a sample; without one, its error to the truth is NaN."""

    step: str
    iteration: int | None
    """Of the search; None for the truth and for searches without a record."""
    pixels: np.ndarray | None
    """Shape (C, H, W); None if it was not recorded or the sample was not recovered."""
    mse: float


@dataclass(frozen=True)
class Strip:
    """Pictures of one sample of one victim: the truth first, the result last."""

    shown: Shown
    victim: int
    sample: int
    converged: bool
    """The attack met its own stopping criterion."""
    pictures: list[Picture]
    place: str = ""
    """Best or worst, if samples are ranked."""
    metric: str = "mse"
    value: float = math.nan
    """Printed below the result; the MSE if it is NaN."""


def read_strips(figure: SampleFigure, shown: Shown, values: Values | None = None) -> list[Strip]:
    """Read the strips of one cell, with reconstructions matched to the truth.

    A refused cell has one strip, without an image. Values are those of the figure's metric.

    Raises:
        IncompatibleError: if the cell has no image data.
    """
    if shown.reason:
        nothing = Picture(RESULT, None, None, math.nan)
        return [Strip(shown, 0, 0, converged=False, pictures=[nothing])]
    private = Private.read(shown.private, victims=slice(figure.victims))
    reconstruction = Reconstruction.read(shown.reconstruction, victims=slice(figure.victims))
    if private.modality != "image":
        raise IncompatibleError(
            f"{shown.private}: holds {private.modality} data; no images to show"
        )
    order = match_samples(private, reconstruction)
    victims, samples = private.inputs.shape[:2]
    values = values or {}
    return [
        Strip(
            shown,
            victim,
            sample,
            bool(reconstruction.converged[victim]),
            list(_pictures(figure, private, reconstruction, order, victim, sample)),
            place,
            figure.metric,
            values.get((victim, sample), math.nan),
        )
        for victim in range(victims)
        for sample, place in pick(figure, values, victim, samples)
    ]


def _pictures(
    figure: SampleFigure,
    private: Private,
    found: Reconstruction,
    order: np.ndarray,
    victim: int,
    sample: int,
) -> Iterator[Picture]:
    """Yield the pictures of a sample: with its course, the start and evenly spaced snapshots."""
    truth, place = private.inputs[victim, sample], order[victim, sample]

    def picture(step: str, iteration: int | None, images: np.ndarray) -> Picture:
        if place == UNASSIGNED or victim >= len(images):
            return Picture(step, iteration, None, math.nan)
        error = images[victim, place].astype(np.float64) - truth
        return Picture(step, iteration, images[victim, place], float((error**2).mean()))

    yield Picture(TRUTH, None, truth, 0.0)
    if not (figure.course is None or found.snapshots is None or found.snapshot_iteration is None):
        last = len(found.snapshot_iteration) - 1
        others = np.linspace(1, last, min(figure.course, last)) if last else np.array([])
        for number in [0, *others.round().astype(int)]:
            step, iteration = SNAPSHOT if number else START, int(found.snapshot_iteration[number])
            yield picture(step, iteration, found.snapshots[:, number])
    last_iteration = None if found.iterations is None else int(found.iterations[victim])
    yield picture(RESULT, last_iteration, found.inputs)


def tabulate_strips(strips: list[Strip]) -> pd.DataFrame:
    """Tabulate one row per picture: its cell, victim, sample, step, iteration and error.

    ``place`` is best or worst if samples are ranked, ``value`` is of the figure's metric.
    """
    rows = [
        {
            **levels_of(strip.shown.cell),
            "victim": strip.victim,
            "sample": strip.sample,
            "converged": strip.converged,
            "step": picture.step,
            "iteration": picture.iteration,
            "mse": picture.mse,
            "place": strip.place,
            "value": strip.value if picture.step == RESULT else math.nan,
            "reason": strip.shown.reason,
        }
        for strip in strips
        for picture in strip.pictures
    ]
    return pd.DataFrame(rows).astype({"iteration": "Int64"})


def read_values(figure: SampleFigure, shown: Shown, scores: pd.DataFrame) -> Values:
    """Return the value of the figure's metric for each sample of a cell that has one."""
    wanted = {**levels_of(shown.cell), "metric": str(read_metric(figure.metric))}
    rows = select(scores, wanted).dropna(subset=["sample", "value"])
    return {(int(row["victim"]), int(row["sample"])): row["value"] for row in records(rows)}


def pick(figure: SampleFigure, values: Values, victim: int, samples: int) -> list[tuple[int, str]]:
    """Select the samples of a victim to show: the first, or the best, or the worst; with its place.

    A sample without a value ranks below all others. ``both`` selects at most half of each.
    """
    count = min(figure.samples, samples)
    if figure.pick == "first":
        return [(sample, "") for sample in range(count)]
    sign = -1 if read_metric(figure.metric).better == "higher" else 1
    ranked = sorted(range(samples), key=lambda s: sign * values.get((victim, s), sign * math.inf))
    best = [(sample, BEST) for sample in ranked]
    worst = [(sample, WORST) for sample in reversed(ranked)]
    if figure.pick == "both":
        half = min(count, max(1, samples // 2))
        return [*best[:half], *worst[:half]]
    return {BEST: best, WORST: worst}[figure.pick][:count]
