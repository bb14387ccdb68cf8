"""The images of cells as strips: what was sent, how its search went, what was found."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import pandas as pd

from gleak.artifacts.private import Private
from gleak.artifacts.reconstruction import Reconstruction
from gleak.core.errors import IncompatibleError
from gleak.experiments.figure_spec import Shown
from gleak.figures.picks import Values, pick
from gleak.figures.samples import SampleFigure
from gleak.figures.summary import CELL
from gleak.metrics.reconstruction.assignment import UNASSIGNED, match_samples

TRUTH, START, SNAPSHOT, RESULT = "truth", "start", "snapshot", "result"
NO_VALUES: Values = MappingProxyType({})


@dataclass(frozen=True)
class Picture:
    """One image and what is said about it.

    Args:
        step: truth, start, snapshot or result.
        iteration: when it was taken; None for the truth and for searches without a record.
        pixels: Shape (C, H, W); None where there is none to show: it was not kept, or, of a result,
            nothing was found for this sample.
        mse: to the truth; NaN without an image.
    """

    step: str
    iteration: int | None
    pixels: np.ndarray | None
    mse: float


@dataclass(frozen=True)
class Strip:
    """The pictures of one sample of one victim: the truth first, the result last.

    Args:
        shown: the cell.
        victim, sample: their numbers.
        converged: whether the attack's own criterion was met.
        pictures: in the order of time.
        place: best or worst, where the figure tells which of a batch it is.
        metric, value: what stands under the result; where it is NaN, the error does.
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
    """The strips of one cell; its reconstructions are put in the order of the truth.

    Of a cell that was refused there is one, with nothing in the place of the result.

    Args:
        figure: says what is shown.
        shown: the cell.
        values: of the figure's metric.

    Raises:
        IncompatibleError: the cell is not about images.
    """
    if shown.reason:
        nothing = Picture(RESULT, None, None, math.nan)
        return [Strip(shown, 0, 0, converged=False, pictures=[nothing])]
    private = Private.read(shown.private, victims=slice(figure.victims))
    found = Reconstruction.read(shown.reconstruction, victims=slice(figure.victims))
    if private.modality != "image":
        raise IncompatibleError(
            f"{shown.private}: holds {private.modality} data; no images to show"
        )
    order = match_samples(private, found)
    victims, samples = private.inputs.shape[:2]
    picks = {victim: pick(figure, values, victim, samples) for victim in range(victims)}
    return [
        Strip(
            shown,
            victim,
            picked.sample,
            bool(found.converged[victim]),
            list(_pictures(figure, private, found, order, victim, picked.sample)),
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
    """The image assigned to a true sample; None where none was left or none was kept."""
    return None if place == UNASSIGNED or victim >= len(images) else images[victim, place]


def _picture(
    step: str, iteration: int | None, pixels: np.ndarray | None, truth: np.ndarray
) -> Picture:
    if pixels is None:
        return Picture(step, iteration, None, math.nan)
    error = pixels.astype(np.float64) - truth
    return Picture(step, iteration, pixels, float((error**2).mean()))


def _chosen_snapshots(figure: SampleFigure, found: Reconstruction) -> list[int]:
    """The start, and as many others as are wanted and there, spread evenly; none of results."""
    if figure.course is None or found.snapshots is None or found.snapshot_iteration is None:
        return []
    last = len(found.snapshot_iteration) - 1
    others = np.linspace(1, last, min(figure.course, last)) if last else np.array([])
    return [0, *(int(number) for number in others.round())]


def tabulate_strips(strips: list[Strip]) -> pd.DataFrame:
    """One row per picture: its cell, victim, sample, step, iteration and error.

    ``place`` says whether the sample is the best or the worst, ``value`` is of the figure's metric.
    """
    rows = [
        {
            **strip.shown.row,
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
