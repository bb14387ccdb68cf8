"""Trade-offs between the utility of models and privacy under an attack."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from gleak.core.errors import SpecError
from gleak.core.lazy import matplotlib as mpl
from gleak.core.lazy import pandas as pd
from gleak.core.numbers import REFUSED, format_number
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.figures.canvas.panels import PAPER, Colour, hues, new_panels, panel_of
from gleak.figures.canvas.style import NEUTRAL, save, save_numbers, theme
from gleak.figures.published import add_published
from gleak.figures.statistics import (
    CELL,
    band_over_victims,
    cells_of,
    records,
    select,
    summarise,
    table_of,
    why_missing,
)
from gleak.studies.axis_labels import BLIND, Axis, AxisLabels, check_axis, read_metric
from gleak.studies.cell import Cell, levels_of
from gleak.studies.figure_spec import FigureData, GridFigure

ATTACK = "attack"


@register("tradeoff")
class Tradeoff(GridFigure):
    """Privacy of each attacked cell against the utility of models trained under its defence.

    The utility is that of a cell of another grid, of models, which is selected by ``joined``: with
    ``defense: training.defense`` it is the model trained under the defence of the attacked cell.
    Privacy increases to the right, utility upwards. For each colour the region dominated by its
    points is filled: the trade-offs that defences achieve against this attack. Bars are 95%
    confidence intervals over victims and over networks. A dotted line is the mean of the blind
    control, if the grid has it.
    """

    shows_controls: ClassVar[bool] = False

    models: str = Field(description="the grid of models whose utility is drawn")
    joined: dict[str, str] = Field(
        description="axis of the attacked cells: axis of the models that has the same value",
        min_length=1,
    )
    privacy: str = parameter("lpips", "metric of the attacked cells")
    utility: str = parameter("test_accuracy", "metric of the models")
    hue: str = parameter(ATTACK, "axis told apart by colour")
    facets: str | None = parameter(None, "axis told apart by panels, side by side")
    area: str | None = parameter(
        None, "metric of the attacked cells that the area of a point shows, such as sent_kilobytes"
    )
    circled: dict[str, str] = parameter({}, "level: spec, of points to look at twice")

    @property
    def reading(self) -> str:
        return (
            "Points are means. Privacy increases to the right, utility upwards; the filled region "
            "is what the defences achieve against an attack, and its edge their Pareto front. Bars "
            "are 95% confidence intervals, absent for fewer than three victims or networks."
        )

    @property
    def grids(self) -> Sequence[str]:
        return (self.grid, self.models)

    @property
    def used_metrics(self) -> Sequence[str]:
        return [metric for metric in (self.privacy, self.area) if metric]

    @property
    def used_axes(self) -> Sequence[str]:
        return list(dict.fromkeys(filter(None, [self.hue, *self.joined, self.facets])))

    def check_together(self, grids: Sequence[tuple[AxisLabels, Sequence[Cell]]]) -> None:
        (names, cells), (models, trained) = grids
        self.check(names, cells)
        models.check_metric(self.utility)
        for axis in self.joined.values():
            check_axis(axis, models)
        names.select(self.circled)
        for cell in self.chosen(names, cells):
            self.model_of(cell, trained)

    def chosen(self, names: AxisLabels, cells: Sequence[Cell]) -> list[Cell]:
        return super().chosen(names, cells) if ATTACK in names.values else list(cells)

    def model_of(self, cell: Cell, trained: Sequence[Cell]) -> Cell:
        """Return the model that an attacked cell is joined with.

        Raises:
            SpecError: if there is none, or more than one.
        """
        wanted = [axis.place(axis.spec(cell)) for axis in map(Axis.read, self.joined)]
        axes = [Axis.read(text) for text in self.joined.values()]
        models = [one for one in trained if [axis.place(axis.spec(one)) for axis in axes] == wanted]
        if len(models) != 1:
            pairs = zip(self.joined, wanted, strict=True)
            raise SpecError(
                f"{len(models)} models of grid {self.models!r} are joined with cells of "
                f"{', '.join(f'{axis} {value}' for axis, value in pairs)}; it must be one: add the "
                "missing model, or more axes under joined"
            )
        return models[0]

    def draw(self, material: FigureData, stem: Path) -> None:
        points = tabulate_points(self, material)
        save_numbers(points[COLUMNS], stem)
        with theme():
            save(_draw(self, material.names, points), stem, material.conditions)


WIDTH, HEIGHT = 4.6, 3.4  # inches of a panel, at least
ENTRY, HEADING = 0.165, 0.3  # inches of an entry of the legend, and of its title
DIGIT = 4.0  # points of print, of a digit in the legend
SHADE = 0.12
MARGIN = 0.12  # share of an axis that is free at either end
PRIVACY = ["privacy", "privacy_low", "privacy_high"]
UTILITY = ["utility", "utility_low", "utility_high"]
LABELS = ["hue", "point", "facet"]
BOOKS = ["area", "blind", "published", "incomparable", "circled", "count", "stand_in", "reason"]
COLUMNS = [*CELL, *LABELS, *PRIVACY, *UTILITY, *BOOKS]
RING: dict[str, Any] = {"marker": "o", "markersize": 13, "markerfacecolor": "none", "ls": ""}
DIAGONAL = 0.4  # from a point's centre to its edge, along a diagonal, over the root of its area
POINT, SMALLEST, LARGEST = 20.0, 8.0, 160.0  # area of a point, in square points of print
FEW = 10  # points of a panel, above which they are smaller
BLIND_LINE: dict[str, Any] = {"color": NEUTRAL, "lw": 1, "ls": (0, (1, 1.5)), "zorder": 1}
OPEN: dict[str, Any] = {"marker": "o", "markerfacecolor": "white", "ls": ""}


def tabulate_points(figure: Tradeoff, material: FigureData) -> pd.DataFrame:
    """Compute one row per point, in the order of the grid; columns `COLUMNS`.

    Levels are those of the attacked cell; privacy and utility are means with the ends of their
    intervals, NaN if there is no value; ``area`` is the mean of the metric that areas show;
    ``blind`` is the mean privacy of the control in the panel; ``published`` is the paper's privacy.
    """
    names, scores, cells = material.names, material.scores, cells_of(material.scores)
    attacked = figure.chosen(names, [cell for cell in cells if ATTACK in cell.specs])
    attacked.sort(key=lambda cell: [names.axis(lv).index(cell.specs[lv]) for lv in cell.specs])
    trained = [cell for cell in cells if ATTACK not in cell.specs]
    means = _means(figure.privacy, scores, "privacy")
    compared = add_published(table_of(attacked).merge(means), material.published, names)
    circled, hue = names.select(figure.circled), Axis.read(figure.hue)
    rows = []
    for row in records(compared):
        cell = row["cell"]
        model = select(scores, levels_of(figure.model_of(cell, trained)))
        (utility,) = records(_means(figure.utility, model, "utility"))
        labels = {
            "hue": hue.label(names, hue.spec(cell)),
            "point": label_point(figure, names, cell),
            "facet": panel_of(figure.facets, names, cell),
            "circled": bool(circled) and all(cell.specs[lv] == circled[lv] for lv in circled),
            "reason": row["reason"] or utility["reason"],
        }
        rows.append({**row, **{key: utility[key] for key in UTILITY}, **labels, "area": math.nan})
    points = pd.DataFrame(rows)
    if figure.area is not None:
        areas = summarise(scores, read_metric(figure.area))
        points["area"] = points[CELL].merge(areas, on=CELL, how="left")["ours"]
    return points.assign(blind=points["facet"].map(_blind(figure, material)))


def _means(metric: str, scores: pd.DataFrame, column: str) -> pd.DataFrame:
    """Compute the mean of each cell, with the ends of its interval; named after a column."""
    spec = read_metric(metric)
    table = summarise(scores, spec).merge(band_over_victims(scores, spec), on=CELL, how="left")
    named = {"ours": column, "low": f"{column}_low", "high": f"{column}_high"}
    return table.rename(columns=named)


def _blind(figure: Tradeoff, material: FigureData) -> dict[str, float]:
    """Compute the mean of the blind control in each panel."""
    names = material.names
    wanted = {lv: str(spec) for lv, spec in names.select(figure.where).items() if lv != ATTACK}
    scores = select(material.scores, {**wanted, ATTACK: BLIND})
    means = summarise(scores, read_metric(figure.privacy)).merge(table_of(cells_of(scores)))
    facets = [panel_of(figure.facets, names, cell) for cell in means["cell"]]
    return {str(key): float(mean) for key, mean in means.groupby(facets)["ours"].mean().items()}


def label_point(figure: Tradeoff, names: AxisLabels, cell: Cell) -> str:
    """Return the label of a point: its joined levels that differ from the first of the grid.

    The level that panels tell apart is left out.
    """
    panels = Axis.read(figure.facets).level if figure.facets else ""
    joined = dict.fromkeys(Axis.read(text).level for text in figure.joined)
    levels = [level for level in joined if level != panels]
    changed = [level for level in levels if cell.specs[level] != names.axis(level)[0]]
    return ", ".join(names.heading(level, cell.specs[level]) for level in changed or levels[:1])


def counted(points: pd.DataFrame, sign: int) -> pd.Series:
    """Return the privacy of points times the sign of its axis; beyond blind it counts as blind's.

    Nothing hides better than that no update is used.
    """
    blind = (sign * points["blind"]).fillna(math.inf)
    return (sign * points["privacy"]).clip(upper=blind)


def frontier(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the Pareto front (maximising both coordinates), from left to right."""
    best: list[tuple[float, float]] = []
    for x, y in sorted(points, reverse=True):
        if not best or y > best[-1][1]:
            best.append((x, y))
    return best[::-1]


def _draw(figure: Tradeoff, names: AxisLabels, points: pd.DataFrame) -> mpl.figure.Figure:
    facets = list(dict.fromkeys(points["facet"]))
    looks, drawn = hues(points), points.dropna(subset=["privacy", "utility"])
    numbers = {point: str(k) for k, point in enumerate(dict.fromkeys(drawn["point"]), start=1)}
    handles = _handles(names, drawn, looks)
    key: dict[str, Any] = {"color": "black", "ls": "", "markeredgewidth": 0}
    for point, number in numbers.items():
        size = DIGIT * len(number)
        handles.append(mpl.lines.Line2D([], [], marker=f"${number}$", ms=size, label=point, **key))
    for row in records(points[points["reason"] != ""]):
        label = ", ".join(filter(None, [row["hue"], row["point"], REFUSED]))
        handles.append(mpl.lines.Line2D([], [], ls="", label=label))
    height = max(HEIGHT, HEADING + ENTRY * len(handles))
    canvas, panels = new_panels(1, len(facets), (WIDTH, height))
    for axes, facet in zip(panels[0], facets, strict=True):
        shown = drawn[drawn["facet"] == facet]
        _draw_panel(axes, figure, names, shown, looks, numbers)
        largest = ""
        if figure.area is not None and shown["area"].notna().any():
            area = format_number(shown["area"].max())
            largest = f"area: {names.metric(figure.area)}, at most {area}"
        axes.set_title("\n".join(filter(None, [facet, largest])))
    title = Axis.read(figure.hue).title(names)
    canvas.legend(handles=handles, title=title, loc="outside right center", frameon=False)
    return canvas


def _draw_panel(
    axes: mpl.axes.Axes,
    figure: Tradeoff,
    names: AxisLabels,
    points: pd.DataFrame,
    looks: Mapping[str, Colour],
    numbers: Mapping[str, str],
) -> None:
    """Draw the points of a panel, those of each hue with their region."""
    axes.set(xlabel=names.metric(figure.privacy), ylabel=names.metric(figure.utility))
    _set_limits(axes, figure, points)
    if points.empty:
        axes.set(xticks=[], yticks=[])
        text = f"{names.metric(figure.privacy)} {why_missing(figure.privacy)}"
        axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", color="0.5")
    for hue, colour in looks.items():
        _draw_hue(axes, points[points["hue"] == hue], colour, numbers)
    for value in points["blind"].dropna().head(1):
        axes.axvline(value, **BLIND_LINE)
    ringed = points[points["circled"]]
    axes.plot(ringed["privacy"], ringed["utility"], color="black", **RING)


def _set_limits(axes: mpl.axes.Axes, figure: Tradeoff, points: pd.DataFrame) -> None:
    """Set margins around all points; a metric where higher is less private has an inverted axis."""
    across = [*PRIVACY, "blind", "published"]
    for columns, limit in ((across, axes.set_xlim), (UTILITY, axes.set_ylim)):
        values = pd.concat([points[column].dropna() for column in columns])
        if len(values):
            free = MARGIN * (values.max() - values.min() or 1.0)
            limit(values.min() - free, values.max() + free)
    if read_metric(figure.privacy).better == "higher":
        axes.invert_xaxis()


def _draw_hue(
    axes: mpl.axes.Axes, points: pd.DataFrame, colour: Colour, numbers: Mapping[str, str]
) -> None:
    """Draw the region of an attack, its points with their numbers, and the paper's privacy.

    NaN draws nothing.
    """
    from matplotlib.patheffects import withStroke

    _fill_region(axes, points, colour)
    sizes = points["area"].fillna(POINT)
    if points["area"].notna().any():
        largest = LARGEST * min(1, FEW / len(points))
        sizes = (largest * points["area"] / points["area"].max()).clip(lower=SMALLEST)
    halo = withStroke(linewidth=1.5, foreground="white")
    axes.scatter(points["privacy"], points["utility"], sizes, color=colour, lw=0)
    bar: dict[str, Any] = {"color": colour, "lw": 0.8, "alpha": 0.7}
    for row, size in zip(records(points), sizes, strict=True):
        axes.hlines(row["utility"], row["privacy_low"], row["privacy_high"], **bar)
        axes.vlines(row["privacy"], row["utility_low"], row["utility_high"], **bar)
        at, free = (row["privacy"], row["utility"]), 1 + DIAGONAL * math.sqrt(size)
        label = numbers[row["point"]]
        look: dict[str, Any] = {"fontsize": 6.5, "path_effects": [halo]}
        axes.annotate(label, at, (free, free), textcoords="offset points", **look)
        beside = ([at[0], row["published"]], [at[1], at[1]])
        axes.plot(*beside, color=colour, ls=":", lw=0.8)
    axes.plot(points["published"], points["utility"], color=colour, **OPEN)


def _fill_region(axes: mpl.axes.Axes, points: pd.DataFrame, colour: Colour) -> None:
    """Fill the region dominated by the points, in the direction of the axis."""
    left, right = axes.get_xlim()
    sign = 1 if right > left else -1
    corners = frontier(list(zip(counted(points, sign), points["utility"], strict=True)))
    if not corners:
        return
    xs, ys = [left, *(sign * x for x, _ in corners)], [y for _, y in [corners[0], *corners]]
    bottom = axes.get_ylim()[0]
    axes.fill_between(xs, ys, bottom, step="pre", alpha=SHADE, color=colour, lw=0)
    axes.plot([*xs, xs[-1]], [*ys, bottom], drawstyle="steps-pre", color=colour, lw=1)


def _handles(
    names: AxisLabels, points: pd.DataFrame, looks: Mapping[str, Colour]
) -> list[mpl.lines.Line2D]:
    """Return the legend entries of the colours, of the paper's values and of the control."""
    handles = [
        mpl.lines.Line2D([], [], color=colour, marker="o", ls="", markeredgewidth=0, label=hue)
        for hue, colour in looks.items()
    ]
    if points["published"].notna().any():
        handles.append(mpl.lines.Line2D([], [], color=NEUTRAL, label=PAPER, **OPEN))
    if points["blind"].notna().any():
        label = names.label(ATTACK, names.specs[ATTACK][BLIND])
        handles.append(mpl.lines.Line2D([], [], label=label, **BLIND_LINE))
    return handles
