"""Drawing of images."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gleak.artifacts.private import Private
from gleak.artifacts.reconstruction import Reconstruction
from gleak.errors import FitError
from gleak.figures.base import Material, Shown
from gleak.figures.images import Images
from gleak.figures.names import Names
from gleak.figures.numbers import format_number
from gleak.figures.style import new_figure, save, save_numbers, theme
from gleak.figures.summary import CELL
from gleak.metrics.assignment import assign_samples

TRUTH, START, SNAPSHOT, RESULT = "truth", "start", "snapshot", "result"
SIDE = 0.85  # inches of an image
GAP, TEXT = 0.1, 0.33  # inches between images, beside and below each other
LEFT = 0.9  # inches for the labels of the rows


@dataclass(frozen=True)
class Picture:
    """One image and what is said about it.

    Args:
        step: truth, start, snapshot or result.
        iteration: when it was taken; None for the truth and for searches without a record.
        pixels: Shape (C, H, W); None where there is none to show.
        mse: to the truth; NaN without an image.
    """

    step: str
    iteration: int | None
    pixels: np.ndarray | None
    mse: float


@dataclass(frozen=True)
class Strip:
    """One row of the figure: the pictures of one sample of one victim."""

    shown: Shown
    victim: int
    sample: int
    pictures: list[Picture]


def draw_images(figure: Images, material: Material, stem: Path) -> None:
    """Write an image grid and the errors of the images in it."""
    strips = [strip for shown in material.shown for strip in read_strips(figure, shown)]
    save_numbers(_table(strips), stem)
    with theme():
        save(_draw(strips, material.names), stem)


def read_strips(figure: Images, shown: Shown) -> list[Strip]:
    """The rows of one cell; its reconstructions are put in the order of the truth.

    Raises:
        FitError: the cell is not about images.
    """
    private = Private.read(shown.private, victims=slice(figure.victims))
    found = Reconstruction.read(shown.reconstruction)
    if private.modality != "image":
        raise FitError(f"{shown.private}: holds {private.modality} data; no images to show")
    order = assign_samples(private.inputs, found.inputs[: len(private.inputs)])
    return [
        Strip(shown, victim, sample, list(_pictures(figure, private, found, order, victim, sample)))
        for victim in range(len(private.inputs))
        for sample in range(min(figure.samples, private.inputs.shape[1]))
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
    for number in _chosen_snapshots(figure.snapshots, found):
        assert found.snapshots is not None and found.snapshot_iteration is not None
        pixels = found.snapshots[victim, number, place] if victim < len(found.snapshots) else None
        step = SNAPSHOT if number else START
        yield _picture(step, int(found.snapshot_iteration[number]), pixels, truth)
    iteration = None if found.iterations is None else int(found.iterations[victim])
    yield _picture(RESULT, iteration, found.inputs[victim, place], truth)


def _picture(
    step: str, iteration: int | None, pixels: np.ndarray | None, truth: np.ndarray
) -> Picture:
    if pixels is None:
        return Picture(step, iteration, None, math.nan)
    error = pixels.astype(np.float64) - truth
    return Picture(step, iteration, pixels, float((error**2).mean()))


def _chosen_snapshots(count: int, found: Reconstruction) -> list[int]:
    """The start, and as many others as are wanted and there, spread evenly."""
    if found.snapshots is None or found.snapshot_iteration is None:
        return []
    last = len(found.snapshot_iteration) - 1
    others = np.linspace(1, last, min(count, last)) if last else np.array([])
    return [0, *(int(number) for number in others.round())]


def _table(strips: list[Strip]) -> pd.DataFrame:
    rows = [
        {
            **strip.shown.row,
            "victim": strip.victim,
            "sample": strip.sample,
            "step": picture.step,
            "iteration": picture.iteration,
            "mse": picture.mse,
        }
        for strip in strips
        for picture in strip.pictures
    ]
    columns = [*CELL, "victim", "sample", "step", "iteration", "mse"]
    return pd.DataFrame(rows, columns=columns).astype({"iteration": "Int64"})


def _draw(strips: list[Strip], names: Names) -> Figure:
    columns = max(len(strip.pictures) for strip in strips)
    shape = (len(strips), columns)
    cell = (SIDE + GAP, SIDE + TEXT)
    canvas = new_figure(columns * cell[0] + LEFT, shape[0] * cell[1])
    panels = canvas.subplots(*shape, squeeze=False)
    canvas.subplots_adjust(
        left=LEFT / (columns * cell[0] + LEFT),
        right=1,
        bottom=0,
        top=1,
        wspace=GAP / SIDE,
        hspace=TEXT / SIDE,
    )
    varying = _varying(strips)
    for axes in panels.flat:
        axes.set_axis_off()
    for line, strip in zip(panels, strips, strict=True):
        _write(
            line[0], -0.12, 0.5, _label(strip, names, varying), ha="right", va="center", size=7.5
        )
        *before, result = strip.pictures
        for axes, picture in zip(line, before, strict=False):
            _show(axes, picture)
        _show(line[-1], result)
    return canvas


def _write(axes: Axes, x: float, y: float, text: str, **style: Any) -> None:
    """Text beside an image, placed in shares of its sides."""
    axes.text(x, y, text, transform=axes.transAxes, **style)


def _varying(strips: list[Strip]) -> list[str]:
    rows = [strip.shown.row for strip in strips]
    return [level for level in CELL if len({row[level] for row in rows}) > 1]


def _label(strip: Strip, names: Names, varying: list[str]) -> str:
    lines = [names.heading(level, strip.shown.row[level]) for level in varying]
    sample = f", sample {strip.sample}" if strip.sample else ""
    return "\n".join([*lines, f"victim {strip.victim}{sample}"])


def _show(axes: Axes, picture: Picture) -> None:
    """An image, enlarged without smoothing, its step above it and its error below."""
    if picture.pixels is None:
        return
    pixels = picture.pixels.transpose(1, 2, 0)
    grey = pixels.shape[2] == 1
    axes.imshow(
        pixels[..., 0] if grey else pixels,
        cmap="gray" if grey else None,
        vmin=0,
        vmax=1,
        interpolation="nearest",
    )
    axes.set_title(_title(picture), fontsize=7, pad=2)
    if picture.step != TRUTH:
        error = f"MSE {format_number(picture.mse)}"
        _write(axes, 0.5, -0.04, error, ha="center", va="top", size=6.5, color="0.3")


def _title(picture: Picture) -> str:
    """``start``, ``iteration 20``, ``result (113)``: what it is and when it was taken."""
    if picture.step == SNAPSHOT:
        return f"iteration {picture.iteration}"
    after = picture.step == RESULT and picture.iteration is not None
    return f"{picture.step} ({picture.iteration})" if after else picture.step
