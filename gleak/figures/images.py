"""Images: what was sent, how the search went, what was found."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Literal

from gleak.figures.base import FigureSpec, Material, Row
from gleak.figures.names import BLIND, TRUTH, Names
from gleak.metrics.scores import LEVEL_COLUMNS
from gleak.registry import register
from gleak.spec import knob


@register("images")
class Images(FigureSpec):
    """One row per victim: the truth, the start, snapshots of the search, the result.

    The truth of a batch is matched to the result by an optimal assignment, as in scoring.
    """

    needs: ClassVar[Literal["scores", "images"]] = "images"

    victims: int = knob(4, "victims shown of each cell, the first ones", ge=1)
    samples: int = knob(1, "samples shown of each victim, the first ones", ge=1)
    snapshots: int = knob(4, "snapshots between start and result, spread evenly", ge=0)

    @property
    def used_metrics(self) -> Sequence[str]:
        """The one under each image."""
        return ["mse"]

    @property
    def used_axes(self) -> Sequence[str]:
        """Every cell has rows of its own."""
        return LEVEL_COLUMNS

    def chosen(self, names: Names, rows: Sequence[Row]) -> list[Row]:
        """As in `FigureSpec.chosen`, without the controls: they have no search to show."""
        chosen = super().chosen(names, rows)
        return [row for row in chosen if row["attack"] not in (BLIND, TRUTH)]

    def draw(self, material: Material, stem: Path) -> None:
        """See `FigureSpec.draw`."""
        from gleak.figures.images_drawing import draw_images

        draw_images(self, material, stem)
