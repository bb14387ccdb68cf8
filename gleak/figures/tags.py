"""Tags: what is seen in images that were sent, and in those that were found."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Self

from pydantic import model_validator
from typing_extensions import override

from gleak.core.errors import SpecError
from gleak.core.registry import parse, register
from gleak.core.settings import SCALES
from gleak.core.spec import parameter
from gleak.experiments.figure_spec import TABLE_SUFFIXES, FigureData, Row
from gleak.experiments.labels import AxisLabels
from gleak.figures.samples import SampleFigure
from gleak.figures.trainings import TrainedFigure
from gleak.knowledge.tagger import Tagger


@register("tags")
class Tags(SampleFigure, TrainedFigure):
    """The tags of images and of their reconstructions in words, and what share both have.

    Its knowledge is one tagger; attacks that name one for the score `jaccard` name the same.
    """

    suffixes: ClassVar[tuple[str, ...]] = TABLE_SUFFIXES

    metric: str = parameter("jaccard", "by which the best and worst are told")

    @property
    def taggers(self) -> set[str]:
        """Specs of the tagger at each scale."""
        return {str(one.knowledge) for scale in SCALES for one in self.trainings(scale)}

    @model_validator(mode="after")
    def _check_tagger(self) -> Self:
        for scale in SCALES:
            named = [one.knowledge for one in self.trainings(scale)]
            if len(named) != 1 or not isinstance(named[0], Tagger):
                told = ", ".join(map(str, named))
                raise ValueError(f"tags are given by one tagger, and knowledge names {told}")
        return self

    def check(self, names: AxisLabels, rows: Sequence[Row]) -> None:
        """Refuse attacks that are scored by another tagger; see `SampleFigure.check`."""
        super().check(names, rows)
        for attack in {row["attack"]: None for row in self.chosen(names, rows)}:
            own = getattr(parse("attack", attack), "tagger", None)
            if own is not None and str(own) not in self.taggers:
                raise SpecError(
                    f"attack {attack!r} is scored by {own}, and the figure's knowledge is "
                    f"{', '.join(sorted(self.taggers))}; name the same"
                )

    @override
    def draw(self, material: FigureData, stem: Path) -> None:
        from gleak.figures.tags_drawing import draw_tags

        draw_tags(self, material, stem)
