"""Convergence curves: training losses of attacker knowledge and objectives of attacks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
    with_config,
)
from typing_extensions import TypedDict

from gleak.artifacts.model import Knowledge
from gleak.artifacts.reconstruction import Reconstruction
from gleak.core.errors import IncompatibleError, SpecError, nearest
from gleak.core.lazy import matplotlib as mpl
from gleak.core.lazy import pandas as pd
from gleak.core.numbers import REFUSED
from gleak.core.registry import register
from gleak.core.settings import SCALES
from gleak.core.spec import Spec, parameter
from gleak.figures.canvas.panels import facet_panels, hues, panel_of
from gleak.figures.canvas.style import PANEL, colours, save, save_numbers, theme
from gleak.figures.statistics import CELL
from gleak.knowledge.base import Pretraining
from gleak.studies.axis_labels import Axis, AxisLabels
from gleak.studies.cell import Cell, levels_of
from gleak.studies.figure_spec import (
    FigureData,
    FigureSpec,
    GridFigure,
    Shown,
)


@with_config(ConfigDict(extra="forbid"))
class Trained(TypedDict):
    """A training in a study file: a public dataset, and the spec of the trained knowledge."""

    dataset: str
    spec: str


def _as_list(value: object) -> object:
    return [value] if isinstance(value, dict) else value


def _canonical(written: Trained) -> Trained:
    try:
        training = Pretraining.parse(written["dataset"], written["spec"])
    except (SpecError, IncompatibleError) as error:
        raise ValueError(str(error)) from None
    return {"dataset": str(training.dataset), "spec": str(training.knowledge)}


Trainings = Annotated[
    list[Annotated[Trained, AfterValidator(_canonical)]],
    BeforeValidator(_as_list),
    Field(description="the public dataset and the spec of each", min_length=1),
]


@with_config(ConfigDict(extra="forbid"))
class AtScale(TypedDict):
    """Fields of a figure that a scale may override."""

    knowledge: Trainings


class TrainedFigure(FigureSpec):
    """Base class of the kinds drawn from trained knowledge, which may differ between scales."""

    knowledge: Trainings
    quick: AtScale | None = parameter(None, "what is different at this scale")
    small: AtScale | None = parameter(None, "what is different at this scale")

    def trainings(self, scale: str) -> Sequence[Pretraining]:
        own: AtScale | None = getattr(self, scale, None)
        written = self.knowledge if own is None else own["knowledge"]
        return [Pretraining.parse(one["dataset"], one["spec"]) for one in written]


@register("losses")
class Losses(TrainedFigure):
    """Training losses of attacker knowledge over optimisation steps.

    One panel per loss, with one line per training that has this loss.
    """

    labels: dict[str, str] = parameter(
        {}, "spec, whatever it costs, dataset, name or loss -> what is printed"
    )

    def label(self, spec: Spec) -> str:
        """Return the label of a spec: its own, that of its setting, or that of its name."""
        texts = (str(spec), str(spec.setting()), spec.name)
        return next(filter(None, map(self.labels.get, texts)), texts[0])

    def call(self, trained: Sequence[Pretraining]) -> list[str]:
        """Return the label of each training; with its dataset if there are several datasets."""
        several = len({one.dataset for one in trained}) > 1
        return [
            self.label(one.knowledge) + (f" on {self.label(one.dataset)}" if several else "")
            for one in trained
        ]

    @model_validator(mode="after")
    def _check_labels(self) -> Self:
        scales = [self.trainings(scale) for scale in SCALES]
        known = set[str]()
        for one in (one for trained in scales for one in trained):
            specs = (one.knowledge, one.knowledge.setting(), one.dataset)
            known.update(map(str, specs), (spec.name for spec in specs), one.knowledge.losses)
        for text in self.labels:
            if text not in known:
                raise ValueError(f"label {text!r} matches nothing here; {nearest(text, known)}")
        for trained in scales:
            for name, times in Counter(self.call(trained)).most_common(1):
                if times > 1:
                    raise ValueError(f"{times} trainings are called {name}; give each a label")
        return self

    def draw(self, material: FigureData, stem: Path) -> None:
        table = tabulate_losses([Knowledge.read(path) for path in material.trained])
        save_numbers(table, stem)
        with theme():
            save(_draw_losses(self, table), stem, material.conditions)


@register("traces")
class Traces(GridFigure):
    """Objective of iterative attacks over their iterations, averaged over victims.

    The band ranges from the best victim to the worst. The curve rises again at each restart of a
    search, and is constant after its end.
    """

    needs: ClassVar[Literal["scores", "reconstructions"]] = "reconstructions"
    shows_controls: ClassVar[bool] = False

    hue: str = parameter("attack", "axis told apart by colour")
    facets: str | None = parameter(None, "axis told apart by panels, side by side")

    @property
    def reading(self) -> str:
        return "Lines are means over victims; bands range from the best victim to the worst."

    @property
    def used_metrics(self) -> Sequence[str]:
        return ["objective"]

    @property
    def used_axes(self) -> Sequence[str]:
        return [axis for axis in (self.hue, self.facets) if axis is not None]

    def check(self, names: AxisLabels, cells: Sequence[Cell]) -> None:
        super().check(names, cells)
        for attack in (cell.attack for cell in self.chosen(names, cells)):
            if not attack.cost().evaluations:
                raise SpecError(
                    f"attack {str(attack)!r} has no iterations to plot; exclude it under where, or "
                    "choose another kind of figure"
                )

    def draw(self, material: FigureData, stem: Path) -> None:
        table = tabulate_traces(self, material)
        save_numbers(table, stem)
        with theme():
            save(_draw_traces(self, material.names, table), stem, material.conditions)


def tabulate_losses(trained: Sequence[Knowledge]) -> pd.DataFrame:
    """Tabulate every point of every curve: dataset, knowledge, loss, step and value."""
    curves = [
        pd.DataFrame({"loss": name, "step": one.loss_step, "value": values}).assign(
            dataset=one.dataset, knowledge=one.knowledge
        )
        for one in trained
        for name, values in one.losses.items()
    ]
    return pd.concat(curves)[["dataset", "knowledge", "loss", "step", "value"]]


def _draw_losses(figure: Losses, table: pd.DataFrame) -> mpl.figure.Figure:
    names = list(dict.fromkeys(table["loss"]))
    canvas, panels = facet_panels(len(names), PANEL)
    shown = list(dict.fromkeys(zip(table["dataset"], table["knowledge"], strict=True)))
    called = figure.call([Pretraining.parse(*one) for one in shown])
    for axes, name in zip(panels, names, strict=True):
        for (dataset, spec), label, colour in zip(shown, called, colours(len(shown)), strict=True):
            own = (table["dataset"] == dataset) & (table["knowledge"] == spec)
            curve = table[own & (table["loss"] == name)]
            axes.plot(curve["step"], curve["value"], color=colour, label=label)
        axes.set(xlabel="step", ylabel=figure.labels.get(name, name), yscale="log")
    handles, labels = panels[0].get_legend_handles_labels()
    canvas.legend(handles, labels, loc="outside right center", frameon=False)
    return canvas


def tabulate_traces(figure: Traces, material: FigureData) -> pd.DataFrame:
    """Tabulate every point of every trace with the labels of its cell."""
    names, hue = material.names, Axis.read(figure.hue)
    curves = [
        _trace(shown).assign(
            **levels_of(shown.cell),
            hue=hue.label(names, hue.spec(shown.cell)),
            facet=panel_of(figure.facets, names, shown.cell),
        )
        for shown in material.shown
    ]
    columns = ["hue", "facet", "iteration", "mean", "low", "high", "victims", "reason"]
    return pd.concat(curves).reindex(columns=[*CELL, *columns])


def _trace(shown: Shown) -> pd.DataFrame:
    """Compute the mean, minimum and maximum objective over victims at each recorded iteration.

    A refused cell has one row without numbers.

    Raises:
        IncompatibleError: if the attack recorded no trace.
    """
    if shown.reason:
        return pd.DataFrame([{"victims": 0, "reason": shown.reason}])
    reconstruction = Reconstruction.read(shown.reconstruction)
    if reconstruction.trace_iteration is None or reconstruction.trace_objective is None:
        raise IncompatibleError(
            f"{shown.reconstruction}: its attack recorded no trace; exclude it under where"
        )
    values = reconstruction.trace_objective
    return pd.DataFrame(
        {
            "iteration": reconstruction.trace_iteration,
            "mean": values.mean(axis=0),
            "low": values.min(axis=0),
            "high": values.max(axis=0),
            "victims": len(values),
            "reason": "",
        }
    )


def _draw_traces(figure: Traces, names: AxisLabels, table: pd.DataFrame) -> mpl.figure.Figure:
    facets = list(dict.fromkeys(table["facet"]))
    canvas, panels = facet_panels(len(facets), PANEL, sharex=True, sharey=True)
    looks = hues(table)
    handles: dict[str, mpl.artist.Artist] = {}
    for axes, facet in zip(panels, facets, strict=True):
        for hue, colour in looks.items():
            curve = table[(table["facet"] == facet) & (table["hue"] == hue)]
            if curve.empty:
                continue
            label, x = f"{hue}: {REFUSED}" if curve["reason"].any() else hue, curve["iteration"]
            (handles[label],) = axes.plot(x, curve["mean"], color=colour, label=label)
            if curve["victims"].max() > 1:
                axes.fill_between(x, curve["low"], curve["high"], color=colour, alpha=0.18, lw=0)
        axes.set(title=facet, xlabel="iteration", ylabel=names.metric("objective"), yscale="log")
        axes.label_outer()
    title = Axis.read(figure.hue).title(names)
    lines = list(handles.values())
    canvas.legend(handles=lines, title=title, loc="outside right center", frameon=False)
    return canvas
