"""Drawing of tables of tags."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
import pandas as pd
import torch

from gleak.artifacts.knowledge import Knowledge
from gleak.core.numbers import DASH, REFUSED, format_value
from gleak.figures.canvas.style import save_numbers
from gleak.figures.canvas.text_table import write_forms
from gleak.figures.kinds.samples import Tags
from gleak.figures.statistics import CELL
from gleak.figures.strips import Strip, read_strips, read_values
from gleak.knowledge.loading import load_knowledge
from gleak.metrics.reconstruction.jaccard import shares
from gleak.studies.axis_labels import AxisLabels
from gleak.studies.cell import Cell
from gleak.studies.figure_spec import FigureData
from gleak.studies.refusals import levels_of

if TYPE_CHECKING:
    from gleak.knowledge.networks import TagClassifier

SAME_SAMPLES = ("defense", "attack")
"""Levels that do not change the samples of a cell."""


@dataclass(frozen=True)
class Tagged:
    """Tags of one sample.

    Args:
        strip: the sample.
        truth, found: tags of the image and of its reconstruction, most likely first; none if it
            was not recovered.
        shared: their Jaccard similarity; NaN if the cell was refused.
    """

    strip: Strip
    truth: list[str]
    found: list[str]
    shared: float


class WordTagger:
    """A tagger with the names of its tags.

    Args:
        path: its ``knowledge.h5``.
        shape: of the images.
    """

    def __init__(self, path: Path, shape: tuple[int, ...]) -> None:
        self.words = Knowledge.read(path).class_names
        self.network = cast("TagClassifier", load_knowledge(path, shape)[1])

    def __call__(self, strip: Strip) -> Tagged:
        """Tag the truth, the first picture of a strip, and the result, the last one."""
        truth, result = strip.pictures[0].pixels, strip.pictures[-1].pixels
        assert truth is not None
        true = self._tags(truth)
        if result is None:
            return Tagged(strip, self._names(true), [], 0.0)
        found = self._tags(result)
        return Tagged(strip, self._names(true), self._names(found), float(shares(true, found)[0]))

    def _tags(self, pixels: np.ndarray) -> np.ndarray:
        """Predict the tags of an image; Shape (1, number)."""
        with torch.inference_mode():
            return self.network.tags(torch.from_numpy(pixels)[None].float()).numpy()

    def _names(self, tags: np.ndarray) -> list[str]:
        return [str(self.words[number]) for number in tags[0]]


def draw_tags(figure: Tags, material: FigureData, stem: Path) -> None:
    """Write a table of tags in all its formats."""
    strips = [
        strip
        for shown in material.shown
        for strip in read_strips(figure, shown, read_values(figure, shown, material.scores))
    ]
    tagged = _tag(strips, *material.trained)
    save_numbers(_tabulate(tagged), stem)
    reasons = "; ".join(dict.fromkeys(one.reason for one in material.shown if one.reason))
    note = f"{DASH} no image. {REFUSED} {reasons}." if reasons else f"{DASH} no image."
    write_forms(lay_out(tagged, material.names), note, stem, align="left")


def _tag(strips: list[Strip], path: Path) -> list[Tagged]:
    """Tag each strip; those of refused cells have no tags."""
    truths = (strip.pictures[0].pixels for strip in strips)
    shape = next((truth.shape for truth in truths if truth is not None), None)
    tagger = None if shape is None else WordTagger(path, shape)
    return [
        Tagged(strip, [], [], math.nan) if strip.shown.reason or tagger is None else tagger(strip)
        for strip in strips
    ]


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
    books = ["victim", "sample", "truth", "found", "jaccard", "reason"]
    return pd.DataFrame(rows, columns=[*CELL, *books])


def lay_out(tagged: list[Tagged], names: AxisLabels) -> pd.DataFrame:
    """Arrange the tags as labelled texts.

    Returns:
        Index: the image, and either "original" or the label of the cell that recovered it;
        columns: the tags, and their similarity to those of the original. An original that several
        cells share has one row, before its reconstructions.
    """
    varying = names.varying([one.strip.shown.cell for one in tagged])
    image_levels = [level for level in varying if level not in SAME_SAMPLES]
    cell_levels = [level for level in varying if level in SAME_SAMPLES]
    by_image: dict[str, dict[str, tuple[str, str]]] = {}
    for one in tagged:
        specs, strip = one.strip.shown.cell, one.strip
        reason, cell = strip.shown.reason, _text(specs, cell_levels, names) or "found"
        if reason:
            by_image.setdefault(_text(specs, image_levels, names) or DASH, {})[cell] = (
                REFUSED,
                REFUSED,
            )
            continue
        image = _text(specs, image_levels, names, f"victim {strip.victim}, sample {strip.sample}")
        lines = by_image.setdefault(image, {"original": (", ".join(one.truth), "")})
        words = ", ".join(one.found) or DASH
        lines[cell] = (words, format_value(one.shared, reason))
    flat = {
        (image, shown): line for image, lines in by_image.items() for shown, line in lines.items()
    }
    return pd.DataFrame(
        list(flat.values()),
        index=pd.MultiIndex.from_tuples(list(flat), names=["image", "shown"]),
        columns=pd.MultiIndex.from_tuples([("tags",), ("shared (Jaccard)",)]),
    )


def _text(cell: Cell, levels: list[str], names: AxisLabels, *more: str) -> str:
    return ", ".join([*(names.heading(level, cell.specs[level]) for level in levels), *more])
