"""Convergence curves: training losses of attacker knowledge and objectives of attacks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Literal, Self

from pydantic import model_validator
from typing_extensions import override

from gleak.core.errors import SpecError, nearest
from gleak.core.registry import register
from gleak.core.settings import SCALES
from gleak.core.spec import Spec, parameter
from gleak.figures.kinds.base import TrainedFigure
from gleak.knowledge.base import Pretraining
from gleak.studies.axis_labels import AxisLabels
from gleak.studies.cell import Cell
from gleak.studies.figure_spec import FigureData, GridFigure, without_controls


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
        known = {text for trained in scales for one in trained for text in _texts(one)}
        for text in self.labels:
            if text not in known:
                raise ValueError(f"label {text!r} matches nothing here; {nearest(text, known)}")
        for trained in scales:
            for name, times in Counter(self.call(trained)).most_common(1):
                if times > 1:
                    raise ValueError(f"{times} trainings are called {name}; give each a label")
        return self

    @override
    def draw(self, material: FigureData, stem: Path) -> None:
        from gleak.figures.kinds.convergence_drawing import draw_losses

        draw_losses(self, material, stem)


def _texts(trained: Pretraining) -> set[str]:
    """Return all texts of a training that can have a label."""
    specs = (trained.knowledge, trained.knowledge.setting(), trained.dataset)
    return {*map(str, specs), *(spec.name for spec in specs), *trained.knowledge.losses}


@register("traces")
class Traces(GridFigure):
    """Objective of iterative attacks over their iterations, averaged over victims.

    The band ranges from the best victim to the worst. The curve rises again at each restart of a
    search, and is constant after its end.
    """

    needs: ClassVar[Literal["scores", "reconstructions"]] = "reconstructions"

    hue: str = parameter("attack", "axis told apart by colour")
    facets: str | None = parameter(None, "axis told apart by panels, side by side")

    @property
    @override
    def reading(self) -> str:
        return "Lines are means over victims; bands range from the best victim to the worst."

    @property
    @override
    def used_metrics(self) -> Sequence[str]:
        return ["objective"]

    @property
    @override
    def used_axes(self) -> Sequence[str]:
        return [axis for axis in (self.hue, self.facets) if axis is not None]

    @override
    def check(self, names: AxisLabels, cells: Sequence[Cell]) -> None:
        super().check(names, cells)
        for attack in (cell.attack for cell in self.chosen(names, cells)):
            if not attack.cost().evaluations:
                raise SpecError(
                    f"attack {str(attack)!r} has no iterations to plot; exclude it under where, or "
                    "choose another kind of figure"
                )

    @override
    def chosen(self, names: AxisLabels, cells: Sequence[Cell]) -> list[Cell]:
        return without_controls(super().chosen(names, cells))

    @override
    def draw(self, material: FigureData, stem: Path) -> None:
        from gleak.figures.kinds.convergence_drawing import draw_traces

        draw_traces(self, material, stem)
