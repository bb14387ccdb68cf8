"""Drawing of tables of tags."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import nn

from gleak.artifacts.knowledge import Knowledge
from gleak.figures.base import Material
from gleak.figures.names import Names
from gleak.figures.numbers import DASH, format_number
from gleak.figures.picks import read_values
from gleak.figures.strips import Strip, read_strips
from gleak.figures.style import save_numbers
from gleak.figures.summary import CELL
from gleak.figures.table_forms import write_forms
from gleak.figures.tags import Tags
from gleak.knowledge.load import load_knowledge

WORDS = "tags"
SHARED = "shared (Jaccard)"
ORIGINAL = "original"


@dataclass(frozen=True)
class Tagged:
    """The words for one sample.

    Args:
        strip: the sample.
        truth, found: tags, the likeliest first; of an image that was not found none.
    """

    strip: Strip
    truth: list[str]
    found: list[str]

    @property
    def shared(self) -> float:
        """Size of the intersection over that of the union (ROG Eq. 21)."""
        one, other = set(self.truth), set(self.found)
        return len(one & other) / len(one | other)


class Dictionary:
    """A tagger and the words for what it tells.

    Args:
        path: its ``knowledge.h5``.
    """

    def __init__(self, path: Path) -> None:
        artifact = Knowledge.read(path)
        self.words = [str(name) for name in artifact.class_names]
        self.network: nn.Module
        _, self.network = load_knowledge(path, tuple(map(int, artifact.input_shape)))

    def tags(self, pixels: np.ndarray | None) -> list[str]:
        """Words for an image of Shape (C, H, W)."""
        if pixels is None:
            return []
        tagger: Any = self.network
        with torch.inference_mode():
            (chosen,) = tagger.tags(torch.from_numpy(pixels)[None].float())
        return [self.words[number] for number in chosen]


def draw_tags(figure: Tags, material: Material, stem: Path) -> None:
    """Write a table of tags in all its forms."""
    dictionary = Dictionary(*material.trained)
    tagged = [
        Tagged(strip, *(dictionary.tags(picture.pixels) for picture in strip.pictures))
        for shown in material.shown
        for strip in read_strips(figure, shown, read_values(figure, shown, material.scores))
    ]
    save_numbers(_tabulate(tagged), stem)
    write_forms(lay_out(tagged, material.names), f"{DASH} no image.", stem, align="left")


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
        }
        for one in tagged
    ]
    return pd.DataFrame(rows, columns=[*CELL, "victim", "sample", "truth", "found", "jaccard"])


def lay_out(tagged: list[Tagged], names: Names) -> pd.DataFrame:
    """The table as it is printed.

    Returns:
        Index: the image, and whether it is the original or what a cell found; columns: the tags,
        and how many of them the original has too. An original that several cells sought stands
        there once, before what they found.
    """
    varying = names.varying([one.strip.shown.row for one in tagged])
    lines: dict[tuple[str, str], tuple[str, str]] = {}
    for one in sorted(tagged, key=lambda one: (one.strip.victim, one.strip.sample)):
        image = f"victim {one.strip.victim}, sample {one.strip.sample}"
        cell = ", ".join(names.heading(level, one.strip.shown.row[level]) for level in varying)
        lines.setdefault((image, ORIGINAL), (", ".join(one.truth), ""))
        words = ", ".join(one.found) or DASH
        lines[image, cell or "found"] = (words, format_number(one.shared))
    return pd.DataFrame(
        list(lines.values()),
        index=pd.MultiIndex.from_tuples(list(lines), names=["image", "shown"]),
        columns=pd.MultiIndex.from_tuples([(WORDS,), (SHARED,)]),
    )
