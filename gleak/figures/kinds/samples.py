"""Single samples of some victims: strips of images, from the truth to the result."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, Literal

import numpy as np
from typing_extensions import override

from gleak.artifacts.private import Private
from gleak.artifacts.reconstruction import Reconstruction
from gleak.core.errors import IncompatibleError, SpecError
from gleak.core.lazy import pandas as pd
from gleak.core.spec import parameter
from gleak.figures.statistics import CELL, records, select
from gleak.metrics.reconstruction.assignment import UNASSIGNED, match_samples
from gleak.studies.axis_labels import AxisLabels, read_metric
from gleak.studies.cell import LEVELS, Cell, levels_of
from gleak.studies.figure_spec import GridFigure, Shown, without_controls


class SampleFigure(GridFigure):
    """Base class of the kinds that show single samples of some victims."""

    needs: ClassVar[Literal["scores", "reconstructions"]] = "reconstructions"

    victims: int = parameter(4, "victims shown of each cell, the first ones", ge=1)
    samples: int = parameter(1, "samples shown of each victim", ge=1)
    pick: Literal["first", "best", "worst", "both"] = parameter(
        "first", "which samples; both: so many of the best, and then of the worst"
    )
    metric: str = parameter("mse", "number under each result, by which the best and worst are told")

    @property
    @override
    def used_metrics(self) -> Sequence[str]:
        return [self.metric]

    @property
    @override
    def used_axes(self) -> Sequence[str]:
        return LEVELS

    @property
    def course(self) -> int | None:
        """Number of snapshots shown besides the start; None if only the result is shown."""
        return None

    @override
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

    @override
    def chosen(self, names: AxisLabels, cells: Sequence[Cell]) -> list[Cell]:
        return without_controls(super().chosen(names, cells))


TRUTH, START, SNAPSHOT, RESULT = "truth", "start", "snapshot", "result"
BEST, WORST = "best", "worst"
Values = Mapping[tuple[int, int], float]
"""Values of a figure's metric, by victim and sample."""
NO_VALUES: Values = MappingProxyType({})


@dataclass(frozen=True)
class Pick:
    """A sample to show.

    Args:
        sample: its index in the batch.
        place: best, worst, or "" where samples are not ranked.
    """

    sample: int
    place: str = ""


@dataclass(frozen=True)
class Picture:
    """One image of a sample.

    Args:
        step: truth, start, snapshot or result.
        iteration: of the search; None for the truth and for searches without a record.
        pixels: Shape (C, H, W); None if it was not recorded or the sample was not recovered.
        mse: to the truth; NaN without an image.
    """

    step: str
    iteration: int | None
    pixels: np.ndarray | None
    mse: float


@dataclass(frozen=True)
class Strip:
    """Pictures of one sample of one victim: the truth first, the result last.

    Args:
        shown: the cell.
        victim, sample: their indices.
        converged: True if the attack met its own stopping criterion.
        pictures: in temporal order.
        place: best or worst, if samples are ranked.
        metric, value: printed below the result; the MSE if the value is NaN.
    """

    shown: Shown
    victim: int
    sample: int
    converged: bool
    pictures: list[Picture]
    place: str = ""
    metric: str = "mse"
    value: float = math.nan


def read_strips(figure: SampleFigure, shown: Shown, values: Values = NO_VALUES) -> list[Strip]:
    """Read the strips of one cell, with reconstructions matched to the truth.

    A refused cell has one strip, without an image.

    Args:
        figure: spec with the numbers of victims and samples.
        shown: the cell.
        values: of the figure's metric.

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
    picks = {victim: pick(figure, values, victim, samples) for victim in range(victims)}
    return [
        Strip(
            shown,
            victim,
            picked.sample,
            bool(reconstruction.converged[victim]),
            list(_pictures(figure, private, reconstruction, order, victim, picked.sample)),
            picked.place,
            figure.metric,
            values.get((victim, picked.sample), math.nan),
        )
        for victim, of_victim in picks.items()
        for picked in of_victim
    ]


def _pictures(
    figure: SampleFigure,
    private: Private,
    found: Reconstruction,
    order: np.ndarray,
    victim: int,
    sample: int,
) -> Iterator[Picture]:
    truth, place = private.inputs[victim, sample], order[victim, sample]
    yield _picture(TRUTH, None, truth, truth)
    for number in _chosen_snapshots(figure, found):
        assert found.snapshots is not None and found.snapshot_iteration is not None
        pixels = _assigned(found.snapshots[:, number], victim, place)
        step = SNAPSHOT if number else START
        yield _picture(step, int(found.snapshot_iteration[number]), pixels, truth)
    iteration = None if found.iterations is None else int(found.iterations[victim])
    yield _picture(RESULT, iteration, _assigned(found.inputs, victim, place), truth)


def _assigned(images: np.ndarray, victim: int, place: int) -> np.ndarray | None:
    """Return the image assigned to a true sample; None if there is none or none was recorded."""
    return None if place == UNASSIGNED or victim >= len(images) else images[victim, place]


def _picture(
    step: str, iteration: int | None, pixels: np.ndarray | None, truth: np.ndarray
) -> Picture:
    if pixels is None:
        return Picture(step, iteration, None, math.nan)
    error = pixels.astype(np.float64) - truth
    return Picture(step, iteration, pixels, float((error**2).mean()))


def _chosen_snapshots(figure: SampleFigure, found: Reconstruction) -> list[int]:
    """Return the indices of the start and of evenly spaced snapshots; none in result layouts."""
    if figure.course is None or found.snapshots is None or found.snapshot_iteration is None:
        return []
    last = len(found.snapshot_iteration) - 1
    others = np.linspace(1, last, min(figure.course, last)) if last else np.array([])
    return [0, *(int(number) for number in others.round())]


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
    books = [
        "victim",
        "sample",
        "converged",
        "step",
        "iteration",
        "mse",
        "place",
        "value",
        "reason",
    ]
    columns = [*CELL, *books]
    return pd.DataFrame(rows, columns=columns).astype({"iteration": "Int64"})


def read_values(figure: SampleFigure, shown: Shown, scores: pd.DataFrame) -> Values:
    """Return the value of the figure's metric for each sample of a cell that has one."""
    wanted = {**levels_of(shown.cell), "metric": str(read_metric(figure.metric))}
    rows = select(scores, wanted).dropna(subset=["sample", "value"])
    return {(int(row["victim"]), int(row["sample"])): row["value"] for row in records(rows)}


def pick(figure: SampleFigure, values: Values, victim: int, samples: int) -> list[Pick]:
    """Select the samples of a victim to show: the first, or the best, or the worst.

    Args:
        figure: spec with selection and number; for ``both`` that number of each, at most half.
        values: of its metric; a sample without a value ranks below all others.
        victim: index of the victim.
        samples: number of samples of the batch.
    """
    count = min(figure.samples, samples)
    if figure.pick == "first":
        return [Pick(sample) for sample in range(count)]
    sign = -1 if read_metric(figure.metric).better == "higher" else 1
    ranked = sorted(range(samples), key=lambda s: sign * values.get((victim, s), sign * math.inf))
    best = [Pick(sample, BEST) for sample in ranked]
    worst = [Pick(sample, WORST) for sample in reversed(ranked)]
    if figure.pick == "both":
        half = min(count, max(1, samples // 2))
        return [*best[:half], *worst[:half]]
    return {BEST: best, WORST: worst}[figure.pick][:count]
