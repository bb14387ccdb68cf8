"""Errors of the tests of audits, beside what is proven and what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from gleak.core.lazy import matplotlib as mpl
from gleak.core.lazy import pandas as pd
from gleak.core.registry import register
from gleak.core.spec import format_value, parameter
from gleak.figures.canvas.panels import facet_panels, panel_of
from gleak.figures.canvas.style import NEUTRAL, colours, save, save_numbers, theme
from gleak.figures.statistics import CELL, Row, chosen_cells, records, summarise
from gleak.membership.canaries import CanarySpec
from gleak.membership.trade_off import gaussian_trade_off, private_trade_off
from gleak.studies.axis_labels import read_metric
from gleak.studies.figure_spec import FigureData, GridFigure

RATES = (0.001, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
ENDS = {"ours": "", "low": "+bound=lower", "high": "+bound=upper"}
PROVEN, MEASURED = "mu_accounted", "epsilon_measured"
COLUMNS = [*CELL, "fpr", "facet", *ENDS, PROVEN, "proven", MEASURED, "allowed", "reason"]
SIDE = (2.4, 2.4)
GRID = np.linspace(0, 1, 401)
MEASURED_LOOK: dict[str, Any] = {"lw": 1.3}
PROVEN_LOOK: dict[str, Any] = {"color": "0.15", "lw": 1, "ls": (0, (5, 2))}
ALLOWED_LOOK: dict[str, Any] = {"color": "0.15", "lw": 1, "ls": ":"}


@register("trade_off_function")
class TradeOffFunction(GridFigure):
    """False negatives against false positives of an audit's test, in a panel for each cell.

    Beside them are two curves: the least errors that the accountant's mu allows, below which no
    test is, and those that an epsilon as large as the measured one allows.
    """

    source = "Dong et al. 2022, Figures 1 and 2"
    shows_controls: ClassVar[bool] = False

    facets: str = Field(description="axis told apart by panels")
    rates: tuple[float, ...] = parameter(RATES, "false positive rates, each above 0 and below 1")

    @property
    def reading(self) -> str:
        return (
            "Lines: errors of the audit's test, with bands of the audit's confidence at each rate. "
            "Dashed: the Gaussian trade-off curve of the accountant's mu, below which no test may "
            "be; absent where nothing is guaranteed. Dotted: the least errors that the measured "
            "epsilon and the audit's delta allow. Grey: guesses."
        )

    @property
    def used_metrics(self) -> Sequence[str]:
        return [*(_errors(rate, end) for rate in self.rates for end in ENDS), PROVEN, MEASURED]

    @property
    def used_axes(self) -> Sequence[str]:
        return [self.facets]

    def draw(self, material: FigureData, stem: Path) -> None:
        points = summarise_errors(self, material)
        save_numbers(points[COLUMNS], stem)
        with theme():
            save(_draw(points), stem, material.conditions)


def summarise_errors(figure: TradeOffFunction, material: FigureData) -> pd.DataFrame:
    """Compute one row for each rate of each cell, in the order of the study; columns `COLUMNS`.

    ``proven`` and ``allowed`` are the least false negatives of `PROVEN` and of `MEASURED`.
    """

    def values(metric: str) -> pd.Series:
        return summarise(material.scores, read_metric(metric)).set_index(CELL)["ours"]

    cells = chosen_cells(figure, material)
    reasons = summarise(material.scores, read_metric(MEASURED)).set_index(CELL)["reason"]
    keys = [tuple(row) for row in cells[CELL].to_numpy()]
    ends = {(rate, end): values(_errors(rate, end)) for rate in figure.rates for end in ENDS}
    proven, measured = values(PROVEN), values(MEASURED)
    rows = [
        {
            **dict(zip(CELL, key, strict=True)),
            "cell": cell,
            "fpr": rate,
            "facet": panel_of(figure.facets, material.names, cell),
            **{end: ends[rate, end][key] for end in ENDS},
            PROVEN: proven[key],
            MEASURED: measured[key],
            "reason": reasons[key],
        }
        for key, cell in zip(keys, cells["cell"], strict=True)
        for rate in figure.rates
    ]
    table = pd.DataFrame(rows)
    least = [_least(row, np.array([row["fpr"]])) for row in records(table)]
    table["proven"], table["allowed"] = (np.concatenate(one) for one in zip(*least, strict=True))
    return table


def _errors(rate: float, end: str) -> str:
    """Return the metric of one end of the interval at a rate."""
    return str(read_metric(f"false_negatives+fpr={format_value(rate)}{ENDS[end]}"))


def _least(row: Row, rates: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Compute the least false negatives by the accountant's mu and by the measured epsilon."""
    audit = row["cell"].specs["attack"]
    assert isinstance(audit, CanarySpec)
    allowed = private_trade_off(rates, row[MEASURED], audit.delta)
    return gaussian_trade_off(rates, row[PROVEN]), allowed


def _draw(points: pd.DataFrame) -> mpl.figure.Figure:
    facets = list(dict.fromkeys(points["facet"]))
    canvas, panels = facet_panels(len(facets), SIDE, sharex=True, sharey=True)
    (colour,) = colours(1)
    for axes, facet in zip(panels, facets, strict=True):
        line = points[points["facet"] == facet]
        proven, allowed = _least(records(line)[0], GRID)
        axes.plot([0, 1], [1, 0], color=NEUTRAL, lw=1)
        axes.plot(GRID, proven, **PROVEN_LOOK)
        axes.plot(GRID, allowed, **ALLOWED_LOOK)
        axes.fill_between(line["fpr"], line["low"], line["high"], color=colour, alpha=0.2, lw=0)
        axes.plot(line["fpr"], line["ours"], color=colour, **MEASURED_LOOK)
        axes.set(title=facet, xlim=(0, 1), ylim=(0, 1), aspect="equal")
        axes.set(xlabel="false positive rate", ylabel="false negative rate")
        axes.label_outer()
    looks = {
        "measured": {"color": colour, **MEASURED_LOOK},
        "proven": PROVEN_LOOK,
        "measured epsilon": ALLOWED_LOOK,
        "guesses": {"color": NEUTRAL, "lw": 1},
    }
    handles = [mpl.lines.Line2D([], [], label=label, **look) for label, look in looks.items()]
    canvas.legend(handles=handles, loc="outside right center", frameon=False)
    return canvas
