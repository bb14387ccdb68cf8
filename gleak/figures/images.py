"""Images: what was sent, how the search went, what was found."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import model_validator
from typing_extensions import override

from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.experiments.figure_spec import FigureData
from gleak.figures.samples import SampleFigure


@register("images")
class Images(SampleFigure):
    """The truth beside what was found, with the error below; victims not converged say so.

    Layout ``search`` has one line per sample: the truth, the start, snapshots of the search, the
    result. Layout ``results`` has one line per cell, the results of its first victims, below a
    line of the truth that all cells share whose samples are the same.

    The truth of a batch is matched to the result by an optimal assignment, as in scoring. A sample
    that an attack found nothing for has a hatched tile. Of a large batch each cell's own best and
    worst samples can be shown.
    """

    layout: Literal["search", "results"] = parameter(
        "search", "the course of each search, or its end"
    )
    snapshots: int = parameter(
        4, "layout search: snapshots between start and result, spread evenly", ge=0
    )

    @property
    @override
    def course(self) -> int | None:
        return self.snapshots if self.layout == "search" else None

    @model_validator(mode="after")
    def _check_layout(self) -> Self:
        if self.layout == "results" and "snapshots" in self.model_fields_set:
            raise ValueError("layout results shows no snapshots; leave them out")
        if self.layout == "search" and self.metric != "mse":
            raise ValueError("layout search shows the MSE of snapshots; leave metric out")
        return self

    @override
    def draw(self, material: FigureData, stem: Path) -> None:
        from gleak.figures.images_drawing import draw_images

        draw_images(self, material, stem)
