"""Heat maps: the mean of a metric by two axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field
from typing_extensions import override

from gleak.core.lazy import matplotlib as mpl
from gleak.core.lazy import pandas as pd
from gleak.core.lazy import seaborn as sns
from gleak.core.numbers import format_value
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.figures.canvas.style import new_figure, save, save_numbers, theme
from gleak.figures.intervals import mean_interval
from gleak.figures.statistics import (
    CELL,
    Row,
    band_over_victims,
    cells_of,
    records,
    summarise,
    table_of,
    why_missing,
    worse_than_blind,
)
from gleak.studies.axis_labels import Axis, AxisLabels, read_metric
from gleak.studies.cell import Cell
from gleak.studies.figure_spec import FigureData, GridFigure, without_controls


@register("heatmap")
class Heatmap(GridFigure):
    """Mean of a metric in each cell of a grid, as a number and as a colour.

    Dark is the better end of the metric: the attack finds more. Means that are worse than that of
    the blind control are marked. Intervals are in the CSV. The paper's values are not shown.
    """

    x: str = Field(description="axis of the columns")
    y: str = Field(description="axis of the rows, from top to bottom")
    facets: str | None = parameter(None, "axis told apart by panels, side by side")
    metric: str = Field(description="metric")
    limits: tuple[float, float] | None = parameter(
        None, "values beyond which the colour no longer changes; none: the lowest and highest mean"
    )

    @property
    @override
    def reading(self) -> str:
        return (
            "Numbers are means over victims; dark is where the attack finds more. A triangle marks "
            "means that are worse than that of the blind control, which uses no update."
        )

    @property
    @override
    def used_metrics(self) -> Sequence[str]:
        return [self.metric]

    @property
    @override
    def used_axes(self) -> Sequence[str]:
        return [axis for axis in (self.x, self.y, self.facets) if axis is not None]

    @override
    def chosen(self, names: AxisLabels, cells: Sequence[Cell]) -> list[Cell]:
        return without_controls(super().chosen(names, cells))

    @override
    def draw(self, material: FigureData, stem: Path) -> None:
        tiles = tabulate_tiles(self, material)
        save_numbers(tiles[COLUMNS], stem)
        with theme():
            save(_draw(self, material.names, tiles), stem, material.conditions)


COLUMNS = [*CELL, "facet", "y", "x", "ours", "low", "high", "worse", "count", "reason"]
TILE = (0.62, 0.25)  # inches
BESIDE, ABOVE = 2.0, 0.9  # inches for labels and colour bar, and for titles
WORSE = "▾"
PALETTE = "rocket_r"
BRIGHT = 0.55  # luminance above which numbers are black


@dataclass(frozen=True)
class Colours:
    """Colours of values.

    Args:
        norm: values -> their place among the colours, from 0 to 1.
        palette: place -> colour.
    """

    norm: mpl.colors.Normalize
    palette: mpl.colors.Colormap

    def ink(self, value: float) -> str:
        """Return the colour of a text on a tile, by the tile's luminance (ITU-R BT.709)."""
        red, green, blue, _ = self.palette(float(self.norm(value)))
        luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue
        return "black" if luminance > BRIGHT else "white"


def tabulate_tiles(figure: Heatmap, material: FigureData) -> pd.DataFrame:
    """Compute one row per tile, in the order of the grid; columns `COLUMNS`."""
    names, scores, metric = material.names, material.scores, read_metric(figure.metric)
    summary = summarise(scores, metric)
    summary["worse"] = worse_than_blind(summary, metric)
    interval = partial(mean_interval, binary=metric.binary)
    bands = band_over_victims(scores, metric, "all", interval)
    table = table_of(figure.chosen(names, cells_of(scores)))
    table = table.merge(summary, on=CELL).merge(bands, on=CELL, how="left")
    return pd.DataFrame([{**row, **_place(figure, names, row)} for row in records(table)])


def _place(figure: Heatmap, names: AxisLabels, row: Row) -> dict[str, str]:
    """Return the labels of the column, the row and the panel of a tile."""
    axes = {"x": figure.x, "y": figure.y, "facet": figure.facets}
    read = {key: Axis.read(text) for key, text in axes.items() if text is not None}
    found = {key: axis.label(names, axis.spec(row["cell"])) for key, axis in read.items()}
    return {"facet": "", **found}


def _draw(figure: Heatmap, names: AxisLabels, tiles: pd.DataFrame) -> mpl.figure.Figure:
    facets, rows, columns = (_ordered(figure, names, tiles, key) for key in ("facet", "y", "x"))
    across = [[x for x in columns if x in set(tiles.loc[tiles["facet"] == f, "x"])] for f in facets]
    width = TILE[0] * sum(map(len, across)) + BESIDE
    canvas = new_figure(width, TILE[1] * len(rows) + ABOVE)
    canvas.set_layout_engine("constrained")
    ratios = list(map(len, across))
    panels = canvas.subplots(1, len(facets), squeeze=False, sharey=True, width_ratios=ratios)[0]
    colours = _colours(figure, tiles)
    for axes, facet, places in zip(panels, facets, across, strict=True):
        _draw_panel(axes, tiles[tiles["facet"] == facet], (places, rows), colours)
        axes.set_title(facet)
        axes.set_xlabel(Axis.read(figure.x).title(names))
    _add_bar(canvas, panels, figure, names, tiles, colours)
    return canvas


def _ordered(figure: Heatmap, names: AxisLabels, tiles: pd.DataFrame, key: str) -> list[str]:
    """Return the labels along an axis in the order of the study."""
    text = {"x": figure.x, "y": figure.y, "facet": figure.facets}[key]
    if text is None:
        return [""]
    axis, drawn = Axis.read(text), set(tiles[key])
    labels = dict.fromkeys(axis.label(names, spec) for spec in names.axis(axis.level))
    return [label for label in labels if label in drawn]


def _colours(figure: Heatmap, tiles: pd.DataFrame) -> Colours:
    """Return the colours of values; dark is the better end."""
    found = tiles["ours"].dropna()
    low, high = figure.limits or ((found.min(), found.max()) if len(found) else (0, 1))
    better = read_metric(figure.metric).better
    palette = PALETTE if better == "higher" else PALETTE.removesuffix("_r")
    return Colours(mpl.colors.Normalize(low, high), sns.color_palette(palette, as_cmap=True))


def _draw_panel(
    axes: mpl.axes.Axes,
    tiles: pd.DataFrame,
    places: tuple[Sequence[str], Sequence[str]],
    colours: Colours,
) -> None:
    """Draw the tiles of a panel with their numbers; places are the labels of x and y."""
    columns, rows = places
    values = np.full((len(rows), len(columns)), np.nan)
    for row in records(tiles):
        at = rows.index(row["y"]), columns.index(row["x"])
        values[at] = row["ours"]
        _write(axes, row, at, colours)
    axes.pcolormesh(
        values, cmap=colours.palette, norm=colours.norm, edgecolors="white", linewidth=1
    )
    axes.set_xticks(np.arange(len(columns)) + 0.5, columns)
    axes.set_yticks(np.arange(len(rows)) + 0.5, rows)
    axes.set(xlim=(0, len(columns)), ylim=(len(rows), 0))
    axes.tick_params(length=0)
    sns.despine(ax=axes, left=True, bottom=True)


def _write(axes: mpl.axes.Axes, row: Row, at: tuple[int, int], colours: Colours) -> None:
    """Write the number of a tile, or why there is none, in black or white."""
    value = row["ours"]
    text = f"{value:.3g}" if math.isfinite(value) else format_value(value, row["reason"])
    look: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 7}
    colour = "black" if math.isnan(value) else colours.ink(value)
    mark = f" {WORSE}" if row["worse"] else ""
    axes.text(at[1] + 0.5, at[0] + 0.5, text + mark, color=colour, **look)


def _add_bar(
    canvas: mpl.figure.Figure,
    panels: np.ndarray,
    figure: Heatmap,
    names: AxisLabels,
    tiles: pd.DataFrame,
    colours: Colours,
) -> None:
    """Draw the colour bar, or say in its place why there are no values."""
    if tiles["ours"].isna().all():
        text = f"{names.metric(figure.metric)} {why_missing(figure.metric)}"
        canvas.suptitle(text, fontsize=8, color="0.5")
        return
    beyond = (tiles["ours"].min() < colours.norm.vmin, tiles["ours"].max() > colours.norm.vmax)
    extend = {(True, True): "both", (True, False): "min", (False, True): "max"}.get(beyond)
    bar = canvas.colorbar(
        mpl.cm.ScalarMappable(colours.norm, colours.palette),
        ax=list(panels),
        extend=extend or "neither",
        aspect=30,
    )
    bar.set_label(names.metric(figure.metric))
    bar.outline.set_visible(False)
