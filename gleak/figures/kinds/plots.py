"""Plots of metrics along an axis: bars, lines and distributions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator
from typing_extensions import override

from gleak.core.registry import register
from gleak.core.spec import Spec, parameter
from gleak.figures.kinds.base import MeanPlot, Plot
from gleak.studies.axis_labels import AxisLabels
from gleak.studies.figure_spec import FigureData, Over, as_list


@register("bar")
class Bar(MeanPlot):
    """Bars of the means of up to three metrics, with the paper's values and the controls.

    One row of panels for each metric. Colours as in `gleak.figures.kinds.base.Plot`; values of x
    are in the order of the study.
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
    def along(self, names: AxisLabels, spec: Spec) -> float | str:
        return self.x_axis.label_category(names, spec)

    @model_validator(mode="after")
    def _check_metrics(self) -> Self:
        if len(set(self.y)) < len(self.y):
            raise ValueError(f"y {self.y} repeats a metric; name each once")
        unshown = sorted({*self.log, *self.over} - set(self.y))
        if unshown:
            raise ValueError(f"log or over name {unshown}, which are not in y")
        return self

    @override
    def draw(self, material: FigureData, stem: Path) -> None:
        from gleak.figures.kinds.plot_drawing import draw_bar

        draw_bar(self, material, stem)


@register("line")
class Line(MeanPlot):
    """Mean of a metric along an axis, with a band, the paper's values and the controls.

    Colours as in `gleak.figures.kinds.base.Plot`: a cell without the field of x is the start of
    every line of its level.
    """

    y: str = Field(description="metric")
    x_missing: float = parameter(0.0, "place on x of specs that lack its field")
    x_scale: Literal["linear", "log", "symlog"] = parameter(
        "linear", "symlog is log with room for 0"
    )
    over: Over = parameter("all", "which reconstructions count; the last: all where none succeeded")

    @property
    @override
    def measured(self) -> Mapping[str, Over]:
        return {self.y: self.over}

    @override
    def along(self, names: AxisLabels, spec: Spec) -> float | str:
        place = self.x_axis.place(spec, self.x_missing)
        return place if isinstance(place, float) else self.x_axis.label(names, spec)

    @override
    def draw(self, material: FigureData, stem: Path) -> None:
        from gleak.figures.kinds.plot_drawing import draw_line

        draw_line(self, material, stem)


@register("distribution")
class Distribution(Plot):
    """All values of a metric as points beside a box of their quantiles, with the controls' means.

    Boxes show the median and the quartiles, whiskers reach from the 0.05 to the 0.95 quantile.
    Colours as in `gleak.figures.kinds.base.Plot`; values of x are in the order of the study. The
    paper's values, which are single numbers, are not shown.
    """

    source = "CPA Figure 7"

    y: str = Field(description="metric; one value per sample, or per victim of those that are so")

    @property
    @override
    def reading(self) -> str:
        return (
            "Points are single values; boxes show their median and quartiles, whiskers the 5% and "
            "95% quantiles. Grey lines: means of the controls (blind uses no update)."
        )

    @property
    @override
    def measured(self) -> Mapping[str, Over]:
        return {self.y: "all"}

    @override
    def along(self, names: AxisLabels, spec: Spec) -> float | str:
        return self.x_axis.label_category(names, spec)

    @override
    def draw(self, material: FigureData, stem: Path) -> None:
        from gleak.figures.kinds.distribution_drawing import draw_distribution

        draw_distribution(self, material, stem)
