"""Grids of images: the truth, the course of searches, and reconstructions."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Literal, Self

from pydantic import model_validator

from gleak.core.numbers import REFUSED, format_number
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.figures.canvas.image_grid import EMPTY, Tile, TileRow, draw_grid
from gleak.figures.canvas.style import save, save_numbers, theme
from gleak.figures.kinds.samples import (
    RESULT,
    SNAPSHOT,
    TRUTH,
    Picture,
    SampleFigure,
    Strip,
    read_strips,
    read_values,
    tabulate_strips,
)
from gleak.studies.axis_labels import AxisLabels
from gleak.studies.cell import Cell
from gleak.studies.figure_spec import FigureData

MOST_COLUMNS = 16
"""Largest number of samples beside each other; the rows of a larger batch are continued below."""


@register("images")
class Images(SampleFigure):
    """True images beside their reconstructions, with the error below each.

    Layout ``search`` has one row per sample: truth, start, snapshots of the search, result. Layout
    ``results`` has one row per cell with the results of its first victims, below a row of the
    truth, which cells with the same samples share. Searches that did not converge are marked.

    Reconstructions are matched to the truth by an optimal assignment, as in scoring. A sample that
    was not recovered has a hatched tile. Of a large batch, each cell's best and worst samples can
    be shown.
    """

    layout: Literal["search", "results"] = parameter(
        "search", "the course of each search, or its end"
    )
    snapshots: int = parameter(
        4, "layout search: snapshots between start and result, spread evenly", ge=0
    )

    @property
    def reading(self) -> str:
        return (
            "Reconstructions are assigned to the true images so that their total error is least. "
            "The number below an image is its error or score. Hatched: not recovered."
        )

    @property
    def course(self) -> int | None:
        return self.snapshots if self.layout == "search" else None

    @model_validator(mode="after")
    def _check_layout(self) -> Self:
        if self.layout == "results" and "snapshots" in self.model_fields_set:
            raise ValueError("layout results shows no snapshots; remove snapshots")
        if self.layout == "search" and self.metric != "mse":
            raise ValueError("layout search shows the MSE of snapshots; remove metric")
        return self

    def draw(self, material: FigureData, stem: Path) -> None:
        # The MSE of the images is computed here; other metrics are those of the scores.
        scored = self.pick != "first" or self.metric != "mse"
        strips = [
            strip
            for shown in material.shown
            for strip in read_strips(
                self, shown, read_values(self, shown, material.scores) if scored else None
            )
        ]
        save_numbers(tabulate_strips(strips), stem)
        lay_out = lay_out_search if self.layout == "search" else lay_out_results
        with theme():
            save(draw_grid(lay_out(strips, material.names)), stem, material.conditions)


def lay_out_search(strips: list[Strip], names: AxisLabels) -> list[TileRow]:
    """Return one row per strip, with the results aligned in the last column."""
    columns = max(len(strip.pictures) for strip in strips)
    varying = names.varying([strip.shown.cell for strip in strips])
    rows = []
    for strip in strips:
        *before, result = [_tile(strip, picture, names) for picture in strip.pictures]
        gap = [EMPTY] * (columns - len(strip.pictures))
        sample = f", sample {strip.sample}" if strip.sample else ""
        victim = [] if strip.shown.reason else [f"victim {strip.victim}{sample}"]
        texts = [*_headings(strip.shown.cell, names, varying), *victim]
        rows.append(TileRow("\n".join(texts), [*before, *gap, result]))
    return rows


def lay_out_results(strips: list[Strip], names: AxisLabels) -> list[TileRow]:
    """Return a row of the truth, then the results of the following cells with the same truth.

    A refused cell, which has no truth, joins those before it.
    """
    groups: list[list[list[Strip]]] = []
    truth: list[bytes] = []
    for _, run in groupby(strips, key=lambda strip: strip.shown):
        cell = list(run)
        truths = (strip.pictures[0].pixels for strip in cell)
        own = [pixels.tobytes() for pixels in truths if pixels is not None]
        if not groups or (own and truth and own != truth):
            groups.append([])
            truth = own
        groups[-1].append(cell)
        truth = truth or own
    varying = names.varying([strip.shown.cell for strip in strips])
    return [row for group in groups for row in _group(group, names, varying)]


def _group(cells: list[list[Strip]], names: AxisLabels, varying: list[str]) -> list[TileRow]:
    """Return the rows of cells with the same truth; their common levels label the truth."""
    specs = [cell[0].shown.cell for cell in cells]
    inside = [lv for lv in varying if len({cell.specs[lv] for cell in specs}) > 1]
    common = _headings(specs[0], names, [level for level in varying if level not in inside])
    sent = next((cell for cell in cells if not cell[0].shown.reason), [])
    truths = [Tile(strip.pictures[0].pixels, above=strip.place) for strip in sent]
    results = [
        TileRow(
            "\n".join(_headings(spec, names, inside)) or RESULT,
            [replace(_tile(strip, strip.pictures[-1], names), above="") for strip in cell],
        )
        for spec, cell in zip(specs, cells, strict=True)
    ]
    return wrapped([TileRow("\n".join([*common, TRUTH]), truths or [EMPTY]), *results])


def wrapped(rows: list[TileRow]) -> list[TileRow]:
    """Return rows of at most `MOST_COLUMNS` tiles, those of the same columns below each other."""
    columns = max(len(row.tiles) for row in rows)
    return [
        replace(row, tiles=tiles)
        for start in range(0, columns, MOST_COLUMNS)
        for row in rows
        if (tiles := row.tiles[start : start + MOST_COLUMNS])
    ]


def _headings(cell: Cell, names: AxisLabels, levels: list[str]) -> list[str]:
    return [names.heading(level, cell.specs[level]) for level in levels]


def _tile(strip: Strip, picture: Picture, names: AxisLabels) -> Tile:
    """Return a picture with its texts; empty for a step of the search that was not recorded.

    Above it are the step and its iteration: ``start``, ``iteration 20``, ``result (113)``.
    """
    if picture.pixels is None and picture.step != RESULT:
        return EMPTY
    above = picture.step
    if above == SNAPSHOT:
        above = f"iteration {picture.iteration}"
    elif above == RESULT and picture.iteration is not None:
        above = f"{RESULT} ({picture.iteration})"
    return Tile(picture.pixels, above, _below(strip, picture, names))


def _below(strip: Strip, picture: Picture, names: AxisLabels) -> str:
    """Return the metric of a result (``SSIM 0.7``), or the MSE, and whether it converged."""
    if picture.step == TRUTH:
        return ""
    if strip.shown.reason:
        return REFUSED
    searched = picture.step == RESULT and picture.iteration is not None
    verdict = "\nnot converged" if searched and not strip.converged else ""
    if picture.pixels is None:
        return f"not found{verdict}"
    if strip.metric == "mse" or picture.step != RESULT or math.isnan(strip.value):
        return f"MSE {format_number(picture.mse)}{verdict}"
    return f"{names.metric(strip.metric)} {format_number(strip.value)}{verdict}"
