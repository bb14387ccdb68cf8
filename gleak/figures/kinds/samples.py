"""Figures of single samples: images and tags of the truth and of reconstructions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Literal, Self

from pydantic import model_validator
from typing_extensions import override

from gleak.core.errors import SpecError
from gleak.core.registry import register
from gleak.core.settings import SCALES
from gleak.core.spec import Spec, parameter
from gleak.figures.kinds.base import SampleFigure, TrainedFigure
from gleak.knowledge.tagger import Tagger
from gleak.studies.axis_labels import AxisLabels
from gleak.studies.cell import Cell
from gleak.studies.figure_spec import TABLE_SUFFIXES, FigureData


@register("images")
class Images(SampleFigure):
    """True images beside their reconstructions, with the error below each.

    Layout ``search`` has one row per sample: truth, start, snapshots of the search, result. Layout
    ``results`` has one row per cell with the results of its first victims, below a row of the
    truth, which cells with the same samples share. Results that did not converge are marked.

    Reconstructions are matched to the truth by an optimal assignment, as in scoring. A sample that
    was not recovered has a hatched tile. Of a large batch, each cell's best and worst samples can
    be shown.
    """

    layout: Literal["search", "results"] = parameter(
        "search", "the course of each search, or its end"
    )
    snapshots: int = parameter(
        4, "layout search: snapshots between start and result, spread evenly", ge=0
    )

    @property
    @override
    def reading(self) -> str:
        return (
            "Reconstructions are assigned to the true images so that their total error is least. "
            "The number below an image is its error or score. Hatched: not recovered."
        )

    @property
    @override
    def course(self) -> int | None:
        return self.snapshots if self.layout == "search" else None

    @model_validator(mode="after")
    def _check_layout(self) -> Self:
        if self.layout == "results" and "snapshots" in self.model_fields_set:
            raise ValueError("layout results shows no snapshots; remove snapshots")
        if self.layout == "search" and self.metric != "mse":
            raise ValueError("layout search shows the MSE of snapshots; remove metric")
        return self

    @override
    def draw(self, material: FigureData, stem: Path) -> None:
        from gleak.figures.kinds.image_drawing import draw_images

        draw_images(self, material, stem)


@register("tags")
class Tags(SampleFigure, TrainedFigure):
    """Predicted tags of images and of their reconstructions, with their Jaccard similarity.

    Its knowledge is one tagger; attacks with a tagger for the score `jaccard` must use the same.
    """

    suffixes: ClassVar[tuple[str, ...]] = TABLE_SUFFIXES

    metric: str = parameter("jaccard", "metric that ranks samples from best to worst")

    @property
    @override
    def reading(self) -> str:
        return "The similarity is the share of all tags of either image that both images have."

    @property
    def taggers(self) -> set[Spec]:
        """Specs of the tagger at any scale."""
        return {one.knowledge for scale in SCALES for one in self.trainings(scale)}

    @model_validator(mode="after")
    def _check_tagger(self) -> Self:
        for scale in SCALES:
            named = [one.knowledge for one in self.trainings(scale)]
            if len(named) != 1 or not isinstance(named[0], Tagger):
                listed = ", ".join(map(str, named))
                raise ValueError(f"knowledge must be a single tagger, not {listed}")
        return self

    @override
    def check(self, names: AxisLabels, cells: Sequence[Cell]) -> None:
        super().check(names, cells)
        for attack in (cell.attack for cell in self.chosen(names, cells)):
            own = getattr(attack, "tagger", None)
            if own is not None and own not in self.taggers:
                raise SpecError(
                    f"attack {str(attack)!r} is scored by {own}, but the figure's knowledge is "
                    f"{', '.join(sorted(map(str, self.taggers)))}; use the same tagger"
                )

    @override
    def draw(self, material: FigureData, stem: Path) -> None:
        from gleak.figures.kinds.tags_drawing import draw_tags

        draw_tags(self, material, stem)
