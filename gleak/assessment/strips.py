"""Pictures of how well each client's best sample is recovered, without and with defences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from gleak.assessment.charts import ATTACKS, GUESS, THRESHOLD, WIDTH, figure_uri
from gleak.assessment.findings import Exposure, Report
from gleak.assessment.wording import bare_name, readable, three_digits
from gleak.figures.canvas.style import new_figure, theme

ROW, AROUND = 0.5, 1.1  # inches: of the clients under one defence, and all else
BELOW = 0.28
"""Distance between the clients of a row and their guesses, in rows."""
SPREAD = 0.2
"""Height over which the clients of a row are spread, in rows."""
RECOVERED: dict[str, Any] = {**ATTACKS[0], "linestyle": "none", "alpha": 0.7, "markersize": 5}
GUESSED: dict[str, Any] = {**GUESS, "linestyle": "none", "alpha": 0.5, "markersize": 3}
LEAST = 1e-12
"""Errors below this are drawn there, as their axis is logarithmic."""


class Strip(NamedTuple):
    """A picture as data URI, and what it shows as a text."""

    uri: str
    text: str


class Row(NamedTuple):
    """Clients, with the name of their defence or kind."""

    label: str
    exposure: Exposure


def strips_of(report: Report) -> Iterator[Strip]:
    """Yield the picture of each metric of a threshold."""
    rows = list(_rows(report))
    for metric in dict.fromkeys(row.exposure.metric for row in rows):
        shown = [row for row in rows if row.exposure.metric == metric]
        with theme():
            uri = figure_uri(draw_strip(shown))
        yield Strip(uri, _text(shown))


def _rows(report: Report) -> Iterator[Row]:
    """Yield the strongest attack in each metric of each kind of clients, and under each defence."""
    kinds = {
        "as deployed": report.exposures,
        "captured": report.captured,
        "crafted parameters": report.crafted,
        **{
            readable(each.defense) if each.defense != "none" else "no defence": each.exposures
            for each in report.defenses
            if not each.deployed
        },
    }
    for label, exposures in kinds.items():
        for metric in dict.fromkeys(exposure.metric for exposure in exposures):
            yield Row(label, next(each for each in exposures if each.metric == metric))


def draw_strip(rows: Sequence[Row]) -> Figure:
    """Draw the best recovered sample of each client, above its guess, in a row for each defence."""
    first = rows[0].exposure
    lower = first.better == "lower"
    figure: Figure = new_figure(2 * WIDTH, AROUND + ROW * len(rows))
    figure.set_layout_engine("constrained")
    axes = figure.subplots()
    drawn = {}
    for place, row in enumerate(rows):
        values = np.array([loss.value for loss in row.exposure.losses], dtype=float)
        guesses = np.array([loss.blind for loss in row.exposure.losses], dtype=float)
        if lower:
            values, guesses = np.maximum(values, LEAST), np.maximum(guesses, LEAST)
        heights = place + SPREAD * (np.arange(len(values)) % 3 - 1) / 2
        drawn["recovered"] = axes.plot(values, heights - BELOW / 2, **RECOVERED)[0]
        drawn["guess without the update"] = axes.plot(guesses, heights + BELOW, **GUESSED)[0]
    drawn["threshold"] = axes.axvline(first.threshold, color=THRESHOLD["color"], linestyle=":")
    if lower:
        axes.set_xscale("log")
    counts = [f"{r.label}\n{r.exposure.above} of {r.exposure.clients}" for r in rows]
    axes.set_yticks(range(len(rows)), counts)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    better = "smaller" if lower else "larger"
    axes.set_xlabel(f"{first.metric} of a client's best sample ({better}: closer to the truth)")
    figure.legend(drawn.values(), drawn.keys(), ncols=3, frameon=False, loc="outside upper center")
    return figure


def _text(rows: Sequence[Row]) -> str:
    """Return the numbers of a picture."""
    parts = []
    for label, exposure in rows:
        values = sorted(loss.value for loss in exposure.losses)
        ends = f", {three_digits(values[0])} to {three_digits(values[-1])}" if values else ""
        parts.append(
            f"{label}, by {bare_name(exposure.attack)}: {exposure.above} of {exposure.clients} "
            f"clients at {exposure.limit}{ends}"
        )
    return f"Best recovered sample of each client. {'; '.join(parts)}."
