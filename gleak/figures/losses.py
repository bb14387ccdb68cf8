"""Curves of how the training of knowledge went."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from pydantic import model_validator
from typing_extensions import override

from gleak.core.errors import nearest
from gleak.core.registry import register
from gleak.core.settings import SCALES
from gleak.core.spec import parameter
from gleak.experiments.figure_spec import FigureData
from gleak.experiments.labels import bare
from gleak.figures.trainings import TrainedFigure
from gleak.knowledge.base import Pretraining


@register("losses")
class Losses(TrainedFigure):
    """Losses of knowledge over the steps of its training.

    A panel for each loss, and in it a line for each training that has it.
    """

    labels: dict[str, str] = parameter(
        {}, "spec, whatever it costs, dataset, name or loss -> what is printed"
    )

    def label(self, text: str, setting: str = "") -> str:
        """What is printed for a text; a spec may be labelled by its setting or its name."""
        found = (self.labels.get(key) for key in (text, setting, bare(text)))
        return next(filter(None, found), text)

    def call(self, trained: Sequence[Pretraining]) -> list[str]:
        """What each of some trainings is called; with its dataset where these differ."""
        several = len({one.dataset for one in trained}) > 1
        return [
            self.label(str(one.knowledge), str(one.knowledge.setting()))
            + (f" on {self.label(str(one.dataset))}" if several else "")
            for one in trained
        ]

    @model_validator(mode="after")
    def _check_labels(self) -> Self:
        scales = [self.trainings(scale) for scale in SCALES]
        known = {text for trained in scales for one in trained for text in _texts(one)}
        for text in self.labels:
            if text not in known:
                raise ValueError(f"label {text!r} is of nothing here; {nearest(text, known)}")
        for trained in scales:
            for name, times in Counter(self.call(trained)).most_common(1):
                if times > 1:
                    raise ValueError(f"{times} trainings are called {name}; give each a label")
        return self

    @override
    def draw(self, material: FigureData, stem: Path) -> None:
        from gleak.figures.losses_drawing import draw_losses

        draw_losses(self, material, stem)


def _texts(trained: Pretraining) -> set[str]:
    """What can have a label."""
    specs = {str(trained.knowledge), str(trained.knowledge.setting()), str(trained.dataset)}
    return {*specs, *map(bare, specs), *trained.knowledge.losses}
