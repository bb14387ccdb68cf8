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
from gleak.experiments.figure_spec import FigureData, Row
from gleak.experiments.labels import AxisLabels
from gleak.figures.picks import read_values
from gleak.figures.strips import Strip, read_strips
from gleak.figures.style import save_numbers
from gleak.figures.summary import CELL
from gleak.figures.table_forms import write_forms
from gleak.figures.tags import Tags
from gleak.knowledge.loading import load_knowledge
from gleak.metrics.reconstruction.jaccard import shares

if TYPE_CHECKING:
    from gleak.knowledge.tagger_network import TagClassifier

FOUND = ("defense", "attack")
"""Levels in which cells may differ that have the same samples."""


@dataclass(frozen=True)
class Tagged:
    """The words for one sample.

    Args:
        strip: the sample.
        truth, found: tags, the likeliest first; of an image that was not found none.
        shared: size of the intersection over that of the union; NaN where the cell was refused.
    """

    strip: Strip
    truth: list[str]
    found: list[str]
    shared: float


class WordTagger:
    """A tagger that tells words.

    Args:
        path: its ``knowledge.h5``.
        shape: of the images.
    """

    def __init__(self, path: Path, shape: tuple[int, ...]) -> None:
        self.words = Knowledge.read(path).class_names
        self.network = cast("TagClassifier", load_knowledge(path, shape)[1])

    def __call__(self, strip: Strip) -> Tagged:
        """The words for the truth, the first of the strip's pictures, and for the result."""
        truth, result = strip.pictures[0].pixels, strip.pictures[-1].pixels
        assert truth is not None
        told = self._tags(truth)
        if result is None:
            return Tagged(strip, self._say(told), [], 0.0)
        found = self._tags(result)
        return Tagged(strip, self._say(told), self._say(found), float(shares(told, found)[0]))

    def _tags(self, pixels: np.ndarray) -> np.ndarray:
        """Shape (1, number)."""
        with torch.inference_mode():
            return self.network.tags(torch.from_numpy(pixels)[None].float()).numpy()

    def _say(self, tags: np.ndarray) -> list[str]:
        return [str(self.words[number]) for number in tags[0]]


def draw_tags(figure: Tags, material: FigureData, stem: Path) -> None:
    """Write a table of tags in all its forms."""
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
    """The words for each strip; of cells that were refused there are none."""
    truths = (strip.pictures[0].pixels for strip in strips)
    shape = next((truth.shape for truth in truths if truth is not None), None)
    tagger = None if shape is None else WordTagger(path, shape)
    return [
        Tagged(strip, [], [], math.nan) if strip.shown.reason or tagger is None else tagger(strip)
        for strip in strips
    ]


def _tabulate(tagged: list[Tagged]) -> pd.DataFrame:
    """One row per cell and sample."""
    rows = [
        {
            **one.strip.shown.row,
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
    """The table as it is printed.

    Returns:
        Index: the image, and whether it is the original or what a cell found; columns: the tags,
        and how many of them the original has too. An original that several cells sought stands
        there once, before what they found.
    """
    varying = names.varying([one.strip.shown.row for one in tagged])
    whose = [level for level in varying if level not in FOUND]
    how = [level for level in varying if level in FOUND]
    found: dict[str, dict[str, tuple[str, str]]] = {}
    for one in tagged:
        row, strip = one.strip.shown.row, one.strip
        reason, cell = strip.shown.reason, _text(row, how, names) or "found"
        if reason:
            found.setdefault(_text(row, whose, names) or DASH, {})[cell] = (REFUSED, REFUSED)
            continue
        image = _text(row, whose, names, f"victim {strip.victim}, sample {strip.sample}")
        lines = found.setdefault(image, {"original": (", ".join(one.truth), "")})
        words = ", ".join(one.found) or DASH
        lines[cell] = (words, format_value(one.shared, reason))
    flat = {(image, shown): line for image, lines in found.items() for shown, line in lines.items()}
    return pd.DataFrame(
        list(flat.values()),
        index=pd.MultiIndex.from_tuples(list(flat), names=["image", "shown"]),
        columns=pd.MultiIndex.from_tuples([("tags",), ("shared (Jaccard)",)]),
    )


def _text(row: Row, levels: list[str], names: AxisLabels, *more: str) -> str:
    return ", ".join([*(names.heading(level, row[level]) for level in levels), *more])
