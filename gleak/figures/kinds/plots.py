"""Numbers of plots along an axis: means, error bands, published values, means of the controls."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from gleak.core.lazy import pandas as pd
from gleak.core.numbers import format_number
from gleak.core.spec import Spec, parameter
from gleak.figures.canvas.panels import panel_of
from gleak.figures.canvas.style import save_numbers
from gleak.figures.published import add_published
from gleak.figures.statistics import (
    CELL,
    Row,
    band_over_victims,
    chosen_cells,
    records,
    select,
    summarise,
)
from gleak.studies.axis_labels import CONTROLS, Axis, AxisLabels, is_control, read_metric
from gleak.studies.cell import Cell
from gleak.studies.figure_spec import FigureData, GridFigure, Over


class Plot(GridFigure):
    """Base class of the kinds that show metrics along an axis.

    If hue is of the same level as x (``x: defense.std``, ``hue: defense.name``), a cell whose
    spec lacks the field of x (``none``) is drawn in every colour.
    """

    shows_controls: ClassVar[bool] = False

    x: str = Field(description="axis: a level, or a field of its specs such as defense.std")
    hue: str | None = parameter(None, "axis told apart by colour")
    facets: str | None = parameter(None, "axis told apart by panels, side by side")

    @property
    @abstractmethod
    def measured(self) -> Mapping[str, Over]:
        """Metrics on y, each with the reconstructions that it averages."""

    @abstractmethod
    def along(self, names: AxisLabels, spec: Spec) -> float | str:
        """Return the position of a spec on x: a number, or its tick label."""

    @property
    def x_axis(self) -> Axis:
        """Axis of x."""
        return Axis.read(self.x)

    @property
    def hue_axis(self) -> Axis | None:
        """Axis of the colours."""
        return None if self.hue is None else Axis.read(self.hue)

    @property
    def used_metrics(self) -> Sequence[str]:
        return list(self.measured)

    @property
    def used_axes(self) -> Sequence[str]:
        return [axis for axis in (self.x, self.hue, self.facets) if axis is not None]


class MeanPlot(Plot):
    """Base class of the plots that show means with their error bands."""

    error: Literal["ci", "sd"] = parameter(
        "ci", "95% confidence interval of the mean over victims, or one standard deviation"
    )

    @property
    def reading(self) -> str:
        band = "95% confidence intervals" if self.error == "ci" else "standard deviations"
        return (
            f"Values are means; bands and error bars are {band} over victims, absent for fewer "
            "than three. Open circles: values of the paper. Grey lines: controls (blind uses no "
            "update)."
        )


NUMBERS = ["metric", "statistic", "over", "failed", "x", "hue", "facet", "ours", "low", "high"]
BOOKS = ["published", "incomparable", "count", "rows", "stand_in", "reason"]
COLUMNS = [*CELL, *NUMBERS, *BOOKS]


def save_points(
    figure: MeanPlot, material: FigureData, stem: Path
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Write the numbers of a plot, and return the points and the controls."""
    points = summarise_points(figure, material)
    controls = summarise_controls(figure, material)
    save_numbers(pd.concat([points, controls])[COLUMNS], stem)
    return points, controls


def summarise_points(figure: MeanPlot, material: FigureData) -> pd.DataFrame:
    """Compute one row per point: cell, position, mean, band, published value; in study order.

    The column ``shown`` has its metric as written in the study.
    """
    names, scores, summaries = material.names, material.scores, []
    for shown, over in figure.measured.items():
        metric, band = read_metric(shown), None if figure.error == "ci" else deviation
        summary = summarise(scores, metric, "mean", over).assign(shown=shown)
        bands = band_over_victims(scores, metric, over, band)
        summaries.append(summary.merge(bands, on=CELL, how="left"))
    points = chosen_cells(figure, material).merge(pd.concat(summaries))
    return place_rows(figure, names, add_published(points, material.published, names))


def place_rows(figure: Plot, names: AxisLabels, table: pd.DataFrame) -> pd.DataFrame:
    """Add x, hue and facet to the rows of cells, and sort them in the order of the study.

    The table has the levels of each cell, the ``cell`` itself, and ``shown``, its metric as
    written in the study.
    """
    cells = list(table["cell"])
    placed = [point for row in records(table) for point in _place(figure, names, row, cells)]
    return pd.DataFrame(_sort(figure, names, placed))


def summarise_controls(figure: Plot, material: FigureData) -> pd.DataFrame:
    """Compute the controls' means over all cells of each panel; columns as of the points."""
    names = material.names
    selected = names.select(figure.where)
    wanted = {level: str(spec) for level, spec in selected.items() if level != "attack"}
    scores = select(material.scores, wanted)
    cells = scores.drop_duplicates(CELL)[[*CELL, "cell"]]
    rows = [
        {**row, "facet": facet, "shown": metric}
        for metric in figure.measured
        for row in records(summarise(scores, read_metric(metric)).merge(cells, on=CELL))
        if is_control(row["cell"])
        for facet in _panels_of_control(figure, names, row["cell"])
    ]
    table = pd.DataFrame(rows, columns=[*COLUMNS, "shown"])
    sums = {"ours": "mean", "count": "sum", "rows": "sum"}
    same = dict.fromkeys(["metric", "statistic", "over", "failed"], "first")
    groups = table.groupby(["shown", "facet", "attack"], as_index=False, sort=False)
    return groups.agg({**sums, **same}).reindex(columns=table.columns)


def deviation(values: np.ndarray) -> tuple[float, float]:
    """Compute the mean minus and plus one standard deviation; NaN for a single value."""
    if len(values) < 2:
        return math.nan, math.nan
    mean, spread = float(values.mean()), float(values.std(ddof=1))
    return mean - spread, mean + spread


def _place(figure: Plot, names: AxisLabels, row: Row, cells: Iterable[Cell]) -> list[Row]:
    """Return the points of a cell: one, or one per colour if it belongs to several."""
    cell, x, hue = row["cell"], figure.x_axis, figure.hue_axis
    facet = panel_of(figure.facets, names, cell)
    placed = {**row, "x": figure.along(names, x.spec(cell)), "facet": facet}
    if hue is None:
        return [{**placed, "hue": ""}]
    own = hue.label(names, hue.spec(cell))
    if hue.level != x.level or x.has_field(x.spec(cell)):
        return [{**placed, "hue": own}]
    drawn = {x.spec(other) for other in cells}
    lines = [spec for spec in names.axis(x.level) if spec in drawn and x.has_field(spec)]
    labels = [hue.label(names, spec) for spec in lines] or [own]
    return [{**placed, "hue": label} for label in dict.fromkeys(labels)]


def _panels_of_control(figure: Plot, names: AxisLabels, cell: Cell) -> list[str]:
    """Return the panels of a control: its own, or all if panels distinguish attacks."""
    axis = Axis.read(figure.facets or "")
    if axis.level != "attack":
        return [panel_of(figure.facets, names, cell)]
    attacks = [spec for spec in names.axis("attack") if spec.name not in CONTROLS]
    return list(dict.fromkeys(axis.label_alone(names, spec) for spec in attacks))


def _sort(figure: Plot, names: AxisLabels, points: list[Row]) -> list[Row]:
    """Sort by metric, panel and colour in the order of the study, then along x."""
    metrics = list(figure.measured)
    facets = _rank(figure.facets, names, Axis.label_alone)
    hues = _rank(figure.hue, names, Axis.label)
    values = names.axis(figure.x_axis.level)

    def key(row: Row) -> tuple[float, ...]:
        x = row["x"]
        along = values.index(figure.x_axis.spec(row["cell"])) if isinstance(x, str) else x
        return metrics.index(row["shown"]), facets[row["facet"]], hues[row["hue"]], along

    return sorted(points, key=key)


def _rank(
    text: str | None, names: AxisLabels, label: Callable[[Axis, AxisLabels, Spec], str]
) -> dict[str, int]:
    """Map the labels of an axis to their rank in the order of the study."""
    if text is None:
        return {"": 0}
    axis = Axis.read(text)
    labels = dict.fromkeys(label(axis, names, spec) for spec in names.axis(axis.level))
    return {label: rank for rank, label in enumerate(labels)}


def categories(figure: Plot, names: AxisLabels, points: pd.DataFrame) -> dict[float | str, str]:
    """Return the tick label of each x in the points, in the order of the study."""
    drawn = set(points["x"])
    order = dict.fromkeys(figure.along(names, spec) for spec in names.axis(figure.x_axis.level))
    return {x: x if isinstance(x, str) else format_number(x) for x in order if x in drawn}
