"""Images: what was sent, how the search went, what was found."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Literal, Self

from pydantic import model_validator

from gleak.errors import SpecError
from gleak.figures.base import GridFigure, Material, Row, without_controls
from gleak.figures.names import Names
from gleak.metrics.scores import LEVEL_COLUMNS
from gleak.registry import parse, register
from gleak.spec import knob


@register("images")
class Images(GridFigure):
    """The truth beside what was found, with the error below; victims not converged say so.

    Layout ``search`` has one line per sample: the truth, the start, snapshots of the search, the
    result. Layout ``results`` has one line per cell, the results of its first victims, below a
    line of the truth that all cells share whose samples are the same.

    The truth of a batch is matched to the result by an optimal assignment, as in scoring. A sample
    that an attack found nothing for has a hatched tile. Of a large batch it can show the best and
    the worst samples, each cell's own.
    """

    needs: ClassVar[Literal["scores", "reconstructions"]] = "reconstructions"

    layout: Literal["search", "results"] = knob("search", "the course of each search, or its end")
    victims: int = knob(4, "victims shown of each cell, the first ones", ge=1)
    samples: int = knob(1, "samples shown of each victim", ge=1)
    pick: Literal["first", "best", "worst", "both"] = knob(
        "first", "which samples; both: so many of the best, and then of the worst"
    )
    metric: str = knob("mse", "number under each result, by which the best and worst are told")
    snapshots: int = knob(
        4, "layout search: snapshots between start and result, spread evenly", ge=0
    )

    @property
    def used_metrics(self) -> Sequence[str]:
        """The one under each result."""
        return [self.metric]

    @property
    def used_axes(self) -> Sequence[str]:
        """Every cell has rows of its own."""
        return LEVEL_COLUMNS

    @model_validator(mode="after")
    def _check_layout(self) -> Self:
        if self.layout == "results" and "snapshots" in self.model_fields_set:
            raise ValueError("layout results shows no snapshots; leave them out")
        if self.layout == "search" and self.metric != "mse":
            raise ValueError("layout search shows the MSE of snapshots; leave metric out")
        return self

    def check(self, names: Names, rows: Sequence[Row]) -> None:
        """Refuse data that are no images, and metrics of whole batches; see `GridFigure.check`."""
        super().check(names, rows)
        if parse("metric", self.metric).per != "sample":
            raise SpecError(f"metric {self.metric!r} is not of single samples; choose mse or ssim")
        for dataset in {row["dataset"]: None for row in self.chosen(names, rows)}:
            if (modality := parse("dataset", dataset).modality) != "image":
                raise SpecError(
                    f"dataset {dataset!r} holds {modality} data, which have no images to show; "
                    "choose one of images under where, or another kind of figure"
                )

    def chosen(self, names: Names, rows: Sequence[Row]) -> list[Row]:
        """As in `GridFigure.chosen`, without the controls: they have no search to show."""
        return without_controls(super().chosen(names, rows))

    def draw(self, material: Material, stem: Path) -> None:
        """See `FigureSpec.draw`."""
        from gleak.figures.images_drawing import draw_images

        draw_images(self, material, stem)
