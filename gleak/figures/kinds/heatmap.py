"""Heat maps: the mean of a metric by two axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from gleak.core.lazy import matplotlib as mpl
from gleak.core.lazy import pandas as pd
from gleak.core.lazy import seaborn as sns
from gleak.core.numbers import format_value
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.figures.canvas.panels import with_name
from gleak.figures.canvas.style import new_figure, save, save_numbers, theme
from gleak.figures.statistics import (
    CELL,
    Row,
    band_over_victims,
    chosen_cells,
    records,
    summarise,
    why_missing,
    worse_than_blind,
)
from gleak.studies.axis_labels import Axis, AxisLabels, read_metric
from gleak.studies.figure_spec import FigureData, GridFigure


@register("heatmap")
class Heatmap(GridFigure):
    """Mean of a metric in each cell of a grid, as a number and as a colour.

    Dark is the better end of the metric: the attack finds more. Means that are worse than that of
    the blind control are marked. Intervals are in the CSV. The paper's values are not shown.
    """

    shows_controls: ClassVar[bool] = False

    x: str = Field(description="axis of the columns")
    y: str = Field(description="axis of the rows, from top to bottom")
    facets: str | None = parameter(None, "axis told apart by panels, side by side")
    metric: str = Field(description="metric")
    limits: tuple[float, float] | None = parameter(
        None, "values beyond which the colour no longer changes; none: the lowest and highest mean"
    )

    @property
    def reading(self) -> str:
        return (
            "Numbers are means over victims; dark is where the attack finds more. A triangle marks "
            "means that are worse than that of the blind control, which uses no update."
        )

    @property
    def used_metrics(self) -> Sequence[str]:
        return [self.metric]

    @property
    def used_axes(self) -> Sequence[str]:
        return [axis for axis in (self.x, self.y, self.facets) if axis is not None]

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


def tabulate_tiles(figure: Heatmap, material: FigureData) -> pd.DataFrame:
    """Compute one row per tile, in the order of the grid; columns `COLUMNS`."""
    names, scores, metric = material.names, material.scores, read_metric(figure.metric)
    summary = summarise(scores, metric)
    summary["worse"] = worse_than_blind(summary, metric)
    bands = band_over_victims(scores, metric)
    tiles = chosen_cells(figure, material).merge(summary, on=CELL).merge(bands, on=CELL, how="left")
    for key, text in (("x", figure.x), ("y", figure.y), ("facet", figure.facets)):
        axis = Axis.read(text or "")
        tiles[key] = [axis.label(names, axis.spec(c)) if text else "" for c in tiles["cell"]]
    return tiles


def _draw(figure: Heatmap, names: AxisLabels, tiles: pd.DataFrame) -> mpl.figure.Figure:
    facets = _ordered(figure.facets, names, tiles["facet"])
    rows, columns = _ordered(figure.y, names, tiles["y"]), _ordered(figure.x, names, tiles["x"])
    across = [[x for x in columns if x in set(tiles.loc[tiles["facet"] == f, "x"])] for f in facets]
    ratios = list(map(len, across))
    canvas = new_figure(TILE[0] * sum(ratios) + BESIDE, TILE[1] * len(rows) + ABOVE)
    canvas.set_layout_engine("constrained")
    panels = canvas.subplots(1, len(facets), squeeze=False, sharey=True, width_ratios=ratios)[0]
    colours = _colours(figure, tiles)
    for axes, facet, places in zip(panels, facets, across, strict=True):
        _draw_panel(axes, tiles[tiles["facet"] == facet], places, rows, colours)
        axes.set_title(with_name(figure.facets, names, facet) if figure.facets else facet)
        axes.set_xlabel(Axis.read(figure.x).title(names))
    if tiles["ours"].isna().all():
        text = f"{names.metric(figure.metric)} {why_missing(figure.metric)}"
        canvas.suptitle(text, fontsize=8, color="0.5")
        return canvas
    beyond = tiles["ours"].min() < colours.norm.vmin, tiles["ours"].max() > colours.norm.vmax
    extend = {(True, True): "both", (True, False): "min", (False, True): "max"}.get(beyond)
    bar = canvas.colorbar(colours, ax=list(panels), extend=extend or "neither", aspect=30)
    bar.set_label(names.metric(figure.metric))
    bar.outline.set_visible(False)
    return canvas


def _ordered(text: str | None, names: AxisLabels, drawn: pd.Series) -> list[str]:
    """Return the labels along an axis in the order of the study."""
    if text is None:
        return [""]
    axis, labels = Axis.read(text), set(drawn)
    ordered = dict.fromkeys(axis.label(names, spec) for spec in names.axis(axis.level))
    return [label for label in ordered if label in labels]


def _colours(figure: Heatmap, tiles: pd.DataFrame) -> mpl.cm.ScalarMappable:
    """Return the colours of values; dark is the better end."""
    means = tiles["ours"].dropna()
    low, high = figure.limits or ((means.min(), means.max()) if len(means) else (0, 1))
    better = read_metric(figure.metric).better
    palette = PALETTE if better == "higher" else PALETTE.removesuffix("_r")
    return mpl.cm.ScalarMappable(
        mpl.colors.Normalize(low, high), sns.color_palette(palette, as_cmap=True)
    )


def _draw_panel(
    axes: mpl.axes.Axes,
    tiles: pd.DataFrame,
    columns: Sequence[str],
    rows: Sequence[str],
    colours: mpl.cm.ScalarMappable,
) -> None:
    """Draw the tiles of a panel with their numbers."""
    values = np.full((len(rows), len(columns)), np.nan)
    for row in records(tiles):
        at = rows.index(row["y"]), columns.index(row["x"])
        values[at] = row["ours"]
        _write(axes, row, at, colours)
    tiled = axes.pcolormesh(values, cmap=colours.cmap, edgecolors="white", linewidth=1)
    tiled.set_norm(colours.norm)
    axes.set_xticks(np.arange(len(columns)) + 0.5, columns)
    axes.set_yticks(np.arange(len(rows)) + 0.5, rows)
    axes.set(xlim=(0, len(columns)), ylim=(len(rows), 0))
    axes.tick_params(length=0)
    sns.despine(ax=axes, left=True, bottom=True)


def _write(
    axes: mpl.axes.Axes, row: Row, at: tuple[int, int], colours: mpl.cm.ScalarMappable
) -> None:
    """Write the number of a tile, or why there is none, in black or white.

    The colour is chosen by the luminance of the tile (ITU-R BT.709).
    """
    value, colour = row["ours"], "black"
    text = f"{value:.3g}" if math.isfinite(value) else format_value(value, row["reason"])
    if not math.isnan(value):
        red, green, blue, _ = colours.to_rgba(np.array(value))
        luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue
        colour = "black" if luminance > BRIGHT else "white"
    mark = f" {WORSE}" if row["worse"] else ""
    look: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 7, "color": colour}
    axes.text(at[1] + 0.5, at[0] + 0.5, text + mark, **look)
