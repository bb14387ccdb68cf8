"""Tables of predicted tags of images and of their reconstructions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from pydantic import model_validator

from gleak.artifacts.model import Knowledge
from gleak.core.errors import SpecError
from gleak.core.lazy import pandas as pd
from gleak.core.lazy import torch
from gleak.core.numbers import DASH, REFUSED, format_number
from gleak.core.registry import register
from gleak.core.settings import SCALES
from gleak.core.spec import parameter
from gleak.figures.canvas.style import save_numbers
from gleak.figures.canvas.tables import write_table
from gleak.figures.kinds.convergence import TrainedFigure
from gleak.figures.kinds.samples import SampleFigure, Strip, read_strips, read_values
from gleak.knowledge.loading import load_knowledge
from gleak.knowledge.tagger import Tagger
from gleak.metrics.reconstruction.feature_similarity import shares
from gleak.studies.axis_labels import AxisLabels
from gleak.studies.cell import Cell, levels_of
from gleak.studies.figure_spec import TABLE_SUFFIXES, FigureData


@register("tags")
class Tags(SampleFigure, TrainedFigure):
    """Predicted tags of images and of their reconstructions, with their Jaccard similarity.

    Its knowledge is one tagger; attacks with a tagger for the score `jaccard` must use the same.
    """

    suffixes: ClassVar[tuple[str, ...]] = TABLE_SUFFIXES

    metric: str = parameter("jaccard", "metric that ranks samples from best to worst")

    @property
    def reading(self) -> str:
        return "The similarity is the share of all tags of either image that both images have."

    @model_validator(mode="after")
    def _check_tagger(self) -> Self:
        for scale in SCALES:
            named = [one.knowledge for one in self.trainings(scale)]
            if len(named) != 1 or not isinstance(named[0], Tagger):
                listed = ", ".join(map(str, named))
                raise ValueError(f"knowledge must be a single tagger, not {listed}")
        return self

    def check(self, names: AxisLabels, cells: Sequence[Cell]) -> None:
        super().check(names, cells)
        taggers = {str(one.knowledge) for scale in SCALES for one in self.trainings(scale)}
        for attack in (cell.attack for cell in self.chosen(names, cells)):
            own = getattr(attack, "tagger", None)
            if own is not None and str(own) not in taggers:
                raise SpecError(
                    f"attack {str(attack)!r} is scored by {own}, but the figure's knowledge is "
                    f"{', '.join(sorted(taggers))}; use the same tagger"
                )

    def draw(self, material: FigureData, stem: Path) -> None:
        strips = [
            strip
            for shown in material.shown
            for strip in read_strips(self, shown, read_values(self, shown, material.scores))
        ]
        tagged = _tag(strips, *material.trained)
        save_numbers(_tabulate(tagged), stem)
        reasons = "; ".join(dict.fromkeys(one.reason for one in material.shown if one.reason))
        write_table(
            lay_out(tagged, material.names),
            stem,
            [f"{DASH} no image.", *([f"{REFUSED} {reasons}."] if reasons else [])],
            heading=(self.title, self.reproduces),
            conditions=material.conditions,
            align="left",
        )


SAME_SAMPLES = ("defense", "attack")
"""Levels that do not change the samples of a cell."""


@dataclass(frozen=True)
class Tagged:
    """Tags of the image of a sample and of its reconstruction, most likely first.

    None are found if it was not recovered. Their Jaccard similarity is NaN if the cell was refused.
    """

    strip: Strip
    truth: list[str]
    found: list[str]
    shared: float


def _tag(strips: list[Strip], path: Path) -> list[Tagged]:
    """Tag the truth and the result of each strip; those of refused cells have no tags."""
    truths = (strip.pictures[0].pixels for strip in strips)
    shape = next((truth.shape for truth in truths if truth is not None), None)
    if shape is None:
        return [Tagged(strip, [], [], math.nan) for strip in strips]
    words = Knowledge.read(path).class_names
    tagger: Any = load_knowledge(path, shape)[1]

    def tags(pixels: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            return np.asarray(tagger.tags(torch.from_numpy(pixels)[None].float()))

    def named(numbers: np.ndarray) -> list[str]:
        return [str(words[number]) for number in numbers[0]]

    def tag(strip: Strip) -> Tagged:
        truth, result = strip.pictures[0].pixels, strip.pictures[-1].pixels
        if strip.shown.reason or truth is None:
            return Tagged(strip, [], [], math.nan)
        true = tags(truth)
        if result is None:
            return Tagged(strip, named(true), [], 0.0)
        recovered = tags(result)
        return Tagged(strip, named(true), named(recovered), float(shares(true, recovered)[0]))

    return list(map(tag, strips))


def _tabulate(tagged: list[Tagged]) -> pd.DataFrame:
    """Tabulate the tags: one row per cell and sample."""
    rows = [
        {
            **levels_of(one.strip.shown.cell),
            "victim": one.strip.victim,
            "sample": one.strip.sample,
            "truth": ", ".join(one.truth),
            "found": ", ".join(one.found),
            "jaccard": one.shared,
            "reason": one.strip.shown.reason,
        }
        for one in tagged
    ]
    return pd.DataFrame(rows)


def lay_out(tagged: list[Tagged], names: AxisLabels) -> pd.DataFrame:
    """Arrange the tags as labelled texts.

    Returns:
        Index: the image, and either "original" or the label of the cell that recovered it;
        columns: the tags, and their similarity to those of the original. An original that several
        cells share has one row, before its reconstructions.
    """
    varying = names.varying([one.strip.shown.cell for one in tagged])

    def text(cell: Cell, *more: str, same: bool) -> str:
        levels = [level for level in varying if (level in SAME_SAMPLES) == same]
        return ", ".join([*(names.heading(level, cell.specs[level]) for level in levels), *more])

    by_image: dict[str, dict[str, tuple[str, str]]] = {}
    for one in tagged:
        cell, strip = one.strip.shown.cell, one.strip
        shown = text(cell, same=True) or "found"
        if strip.shown.reason:
            image = text(cell, same=False) or DASH
            by_image.setdefault(image, {})[shown] = (REFUSED, REFUSED)
            continue
        image = text(cell, f"victim {strip.victim}, sample {strip.sample}", same=False)
        lines = by_image.setdefault(image, {"original": (", ".join(one.truth), "")})
        lines[shown] = (", ".join(one.found) or DASH, format_number(one.shared))
    places = [(image, shown) for image, lines in by_image.items() for shown in lines]
    return pd.DataFrame(
        [row for lines in by_image.values() for row in lines.values()],
        index=pd.MultiIndex.from_tuples(places, names=["image", "shown"]),
        columns=["tags", "shared (Jaccard)"],
    )
