"""The images of cells as strips: what was sent, how its search went, what was found."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from gleak.artifacts.private import Private
from gleak.artifacts.reconstruction import Reconstruction
from gleak.errors import FitError
from gleak.figures.base import Shown
from gleak.figures.images import Images
from gleak.figures.summary import CELL
from gleak.metrics.assignment import NONE_LEFT, sample_order

TRUTH, START, SNAPSHOT, RESULT = "truth", "start", "snapshot", "result"


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
    """

    shown: Shown
    victim: int
    sample: int
    converged: bool
    pictures: list[Picture]


def read_strips(figure: Images, shown: Shown) -> list[Strip]:
    """The strips of one cell; its reconstructions are put in the order of the truth.

    Raises:
        FitError: the cell is not about images.
    """
    private = Private.read(shown.private, victims=slice(figure.victims))
    found = Reconstruction.read(shown.reconstruction, victims=slice(figure.victims))
    if private.modality != "image":
        raise FitError(f"{shown.private}: holds {private.modality} data; no images to show")
    order = sample_order(private, found)
    samples = min(figure.samples, private.inputs.shape[1])
    return [
        Strip(
            shown,
            victim,
            sample,
            bool(found.converged[victim]),
            list(_pictures(figure, private, found, order, victim, sample)),
        )
        for victim in range(len(private.inputs))
        for sample in range(samples)
    ]


def _pictures(
    figure: Images,
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
    return None if place == NONE_LEFT or victim >= len(images) else images[victim, place]


def _picture(
    step: str, iteration: int | None, pixels: np.ndarray | None, truth: np.ndarray
) -> Picture:
    if pixels is None:
        return Picture(step, iteration, None, math.nan)
    error = pixels.astype(np.float64) - truth
    return Picture(step, iteration, pixels, float((error**2).mean()))


def _chosen_snapshots(figure: Images, found: Reconstruction) -> list[int]:
    """The start, and as many others as are wanted and there, spread evenly; none of results."""
    if figure.layout == "results" or found.snapshots is None or found.snapshot_iteration is None:
        return []
    last = len(found.snapshot_iteration) - 1
    others = np.linspace(1, last, min(figure.snapshots, last)) if last else np.array([])
    return [0, *(int(number) for number in others.round())]


def tabulate_strips(strips: list[Strip]) -> pd.DataFrame:
    """One row per picture: its cell, victim, sample, step, iteration and error."""
    rows = [
        {
            **strip.shown.row,
            "victim": strip.victim,
            "sample": strip.sample,
            "converged": strip.converged,
            "step": picture.step,
            "iteration": picture.iteration,
            "mse": picture.mse,
        }
        for strip in strips
        for picture in strip.pictures
    ]
    columns = [*CELL, "victim", "sample", "converged", "step", "iteration", "mse"]
    return pd.DataFrame(rows, columns=columns).astype({"iteration": "Int64"})
