"""Tags: what is seen in images that were sent, and in those that were found."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Literal, Self

from pydantic import model_validator

from gleak.errors import SpecError
from gleak.figures.base import TABLE_SUFFIXES, Material, Row
from gleak.figures.images import Images
from gleak.figures.names import Names
from gleak.figures.trainings import TrainedFigure
from gleak.knowledge.tagger import Tagger
from gleak.registry import register
from gleak.settings import SCALES
from gleak.spec import knob


@register("tags")
class Tags(Images, TrainedFigure):
    """The tags of images and of their reconstructions in words, and what share both have.

    Its knowledge is the tagger, the same one that the attacks name for the score `jaccard`.
    """

    suffixes: ClassVar[tuple[str, ...]] = TABLE_SUFFIXES

    layout: Literal["search", "results"] = knob("results", "what it reads of each search: its end")
    metric: str = knob("jaccard", "by which the best and worst are told")

    @model_validator(mode="after")
    def _check_tagger(self) -> Self:
        for scale in SCALES:
            taggers = [one.knowledge for one in self.trainings(scale)]
            if len(taggers) != 1 or not isinstance(taggers[0], Tagger):
                named = ", ".join(map(str, taggers))
                raise ValueError(f"tags are given by one tagger, and knowledge names {named}")
        return self

    def check(self, names: Names, rows: Sequence[Row]) -> None:
        """Refuse layouts of searches, which have tags only at their end; see `Images.check`."""
        if self.layout != "results":
            raise SpecError("tags are of results; leave layout out")
        super().check(names, rows)

    def draw(self, material: Material, stem: Path) -> None:
        """See `FigureSpec.draw`."""
        from gleak.figures.tags_drawing import draw_tags

        draw_tags(self, material, stem)
