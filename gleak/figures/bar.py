"""Bars: metrics of a few cells, side by side."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Self

from pydantic import BeforeValidator, Field, model_validator
from typing_extensions import override

from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.experiments.axes import label_category
from gleak.experiments.figure_spec import FigureData, Over, Row, as_list
from gleak.experiments.labels import AxisLabels
from gleak.figures.plot import MeanPlot


@register("bar")
class Bar(MeanPlot):
    """Means of up to three metrics as bars, with the paper's values and the controls.

    One row of panels for each metric. Colours as in `gleak.figures.plot.Plot`; values of x stand
    in the order of the study.
    """

    y: Annotated[list[str], BeforeValidator(as_list)] = Field(
        description="metric, or a list of them, from top to bottom", min_length=1, max_length=3
    )
    log: list[str] = parameter([], "metrics on a logarithmic scale")
    over: dict[str, Over] = parameter(
        {}, "metric: all (default), successful, or successful_else_all (all where none succeeded)"
    )

    @property
    @override
    def measured(self) -> Mapping[str, Over]:
        return {metric: self.over.get(metric, "all") for metric in self.y}

    @override
    def along(self, names: AxisLabels, row: Row) -> float | str:
        """A spec that lacks the field of x is called by its own label."""
        return label_category(self.x, names, row)

    @model_validator(mode="after")
    def _check_metrics(self) -> Self:
        if len(set(self.y)) < len(self.y):
            raise ValueError(f"a metric stands twice in y {self.y}")
        unshown = sorted({*self.log, *self.over} - set(self.y))
        if unshown:
            raise ValueError(f"log or over name {unshown}, which y does not")
        return self

    @override
    def draw(self, material: FigureData, stem: Path) -> None:
        from gleak.figures.bar_drawing import draw_bar

        draw_bar(self, material, stem)
