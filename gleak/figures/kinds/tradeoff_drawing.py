"""Drawing of trade-offs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from gleak.core.numbers import REFUSED
from gleak.experiments.axes import Axis
from gleak.experiments.axis_labels import AxisLabels, read_metric
from gleak.experiments.cell import Cell
from gleak.experiments.figure_spec import FigureData
from gleak.experiments.refusals import levels_of
from gleak.figures.canvas.panels import PAPER, Colour, hues, new_panels
from gleak.figures.canvas.style import NEUTRAL, save, save_numbers, theme
from gleak.figures.kinds.tradeoff import ATTACK, Tradeoff
from gleak.figures.published import add_published
from gleak.figures.statistics import (
    CELL,
    Row,
    cells_of,
    records,
    select,
    summarise,
    table_of,
    why_missing,
)

SIZE = (4.6, 3.4)  # inches
SHADE = 0.12
MARGIN = 0.12  # share of an axis that is free at either end
COLUMNS = [
    *CELL,
    "hue",
    "point",
    "privacy",
    "utility",
    "published",
    "incomparable",
    "circled",
    "count",
    "stand_in",
    "reason",
]
RING: dict[str, Any] = {
    "marker": "o",
    "markersize": 13,
    "markerfacecolor": "none",
    "color": "black",
    "ls": "",
}
OPEN: dict[str, Any] = {"marker": "o", "markerfacecolor": "white", "ls": ""}


def draw_tradeoff(figure: Tradeoff, material: FigureData, stem: Path) -> None:
    """Write a trade-off plot and the numbers in it."""
    points = tabulate_points(figure, material)
    save_numbers(points[COLUMNS], stem)
    with theme():
        save(_draw(figure, material.names, points), stem, material.conditions)


def tabulate_points(figure: Tradeoff, material: FigureData) -> pd.DataFrame:
    """Compute one row per point, in the order of the grid; columns `COLUMNS`.

    Levels are those of the attacked cell; privacy and utility are means, NaN if there is no value;
    ``published`` is the paper's privacy.
    """
    names, cells = material.names, cells_of(material.scores)
    attacked = figure.chosen(names, [cell for cell in cells if ATTACK in cell.specs])
    trained = [cell for cell in cells if ATTACK not in cell.specs]
    means = summarise(material.scores, read_metric(figure.privacy))
    means = means.rename(columns={"ours": "privacy"})
    compared = add_published(table_of(attacked).merge(means), material.published, names)
    rows = [
        {**row, **_labels(figure, names, row["cell"]), **_utility(figure, material, row, trained)}
        for row in records(compared)
    ]
    return pd.DataFrame(rows)


def _utility(
    figure: Tradeoff, material: FigureData, row: Row, trained: Sequence[Cell]
) -> dict[str, Any]:
    """Compute the utility of the model joined with a cell; the reason if either was refused."""
    model = figure.model_of(row["cell"], trained)
    scores = select(material.scores, levels_of(model))
    (summary,) = records(summarise(scores, read_metric(figure.utility)))
    return {"utility": float(summary["ours"]), "reason": row["reason"] or summary["reason"]}


def _labels(figure: Tradeoff, names: AxisLabels, cell: Cell) -> dict[str, Any]:
    """Return the labels of a point and its hue, and whether it is circled."""
    circled, hue = names.select(figure.circled), Axis.read(figure.hue)
    return {
        "hue": hue.label(names, hue.spec(cell)),
        "point": label_point(figure, names, cell),
        "circled": bool(circled) and all(cell.specs[lv] == circled[lv] for lv in circled),
    }


def label_point(figure: Tradeoff, names: AxisLabels, cell: Cell) -> str:
    """Return the label of a point: its joined levels that differ from the first of the grid."""
    levels = list(dict.fromkeys(Axis.read(text).level for text in figure.joined))
    changed = [level for level in levels if cell.specs[level] != names.axis(level)[0]]
    return ", ".join(names.heading(level, cell.specs[level]) for level in changed or levels[:1])


def frontier(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the Pareto front (maximising both coordinates), from left to right."""
    best: list[tuple[float, float]] = []
    for x, y in sorted(points, reverse=True):
        if not best or y > best[-1][1]:
            best.append((x, y))
    return best[::-1]


def _draw(figure: Tradeoff, names: AxisLabels, points: pd.DataFrame) -> Figure:
    canvas, panels = new_panels(1, 1, SIZE)
    axes, looks = panels[0, 0], hues(points)
    drawn = points.dropna(subset=["privacy", "utility"])
    axes.set(xlabel=names.metric(figure.privacy), ylabel=names.metric(figure.utility))
    _set_limits(axes, figure, drawn)
    if drawn.empty:
        reason = why_missing(figure.privacy)
        _write_centred(axes, f"{names.metric(figure.privacy)} {reason}")
    numbers = {point: str(k) for k, point in enumerate(dict.fromkeys(drawn["point"]), start=1)}
    for hue, colour in looks.items():
        _draw_hue(axes, drawn[drawn["hue"] == hue], colour, numbers)
    ringed = drawn[drawn["circled"]]
    axes.plot(ringed["privacy"], ringed["utility"], **RING)
    canvas.legend(
        handles=[*_handles(drawn, looks), *_keys(numbers), *_refused(points)],
        title=Axis.read(figure.hue).title(names),
        loc="outside right center",
        frameon=False,
    )
    return canvas


def _write_centred(axes: Axes, text: str) -> None:
    """Write a text in place of points."""
    axes.set(xticks=[], yticks=[])
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", color="0.5")


def _set_limits(axes: Axes, figure: Tradeoff, points: pd.DataFrame) -> None:
    """Set margins around all points; a metric where higher is less private has an inverted axis."""
    for values, limit in (
        (pd.concat([points["privacy"], points["published"].dropna()]), axes.set_xlim),
        (points["utility"], axes.set_ylim),
    ):
        if len(values):
            free = MARGIN * (values.max() - values.min() or 1.0)
            limit(values.min() - free, values.max() + free)
    if read_metric(figure.privacy).better == "higher":
        axes.invert_xaxis()


def _draw_hue(axes: Axes, points: pd.DataFrame, colour: Colour, numbers: Mapping[str, str]) -> None:
    """Draw the region of an attack, its points with their numbers, and the paper's privacy."""
    _fill_region(axes, points, colour)
    axes.plot(points["privacy"], points["utility"], "o", color=colour, markeredgewidth=0)
    for row in records(points):
        at = (row["privacy"], row["utility"])
        axes.annotate(numbers[row["point"]], at, (2, 3), textcoords="offset points", fontsize=6.5)
        beside = ([at[0], row["published"]], [at[1], at[1]])
        axes.plot(*beside, color=colour, ls=":", lw=0.8)
    axes.plot(points["published"], points["utility"], color=colour, **OPEN)


def _fill_region(axes: Axes, points: pd.DataFrame, colour: Colour) -> None:
    """Fill the region dominated by the points, in the direction of the axis."""
    left, right = axes.get_xlim()
    sign = 1 if right > left else -1
    corners = frontier(list(zip(sign * points["privacy"], points["utility"], strict=True)))
    if not corners:
        return
    xs, ys = ([sign * x for x, _ in corners], [y for _, y in corners])
    axes.fill_between(
        [left, *xs], [ys[0], *ys], axes.get_ylim()[0], step="pre", alpha=SHADE, color=colour, lw=0
    )
    axes.plot(
        [left, *xs, xs[-1]],
        [ys[0], *ys, axes.get_ylim()[0]],
        drawstyle="steps-pre",
        color=colour,
        lw=1,
    )


def _handles(points: pd.DataFrame, looks: dict[str, Colour]) -> list[Line2D]:
    handles = [
        Line2D([], [], color=colour, marker="o", ls="", markeredgewidth=0, label=hue)
        for hue, colour in looks.items()
    ]
    if points["published"].notna().any():
        handles.append(Line2D([], [], color=NEUTRAL, label=PAPER, **OPEN))
    return handles


def _refused(points: pd.DataFrame) -> list[Line2D]:
    """Return legend entries of refused cells, which have no points."""
    cells = records(points[points["reason"] != ""])
    texts = [", ".join(filter(None, [row["hue"], row["point"], REFUSED])) for row in cells]
    return [Line2D([], [], ls="", label=text) for text in texts]


def _keys(numbers: Mapping[str, str]) -> list[Line2D]:
    """Return legend entries that explain the numbers of points."""
    look: dict[str, Any] = {"color": "black", "ls": "", "markeredgewidth": 0}
    return [
        Line2D([], [], marker=f"${number}$", label=point, **look)
        for point, number in numbers.items()
    ]
