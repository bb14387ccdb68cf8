"""What figures of single samples have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from gleak.core.errors import SpecError
from gleak.core.registry import parse
from gleak.core.spec import parameter
from gleak.experiments.figure_spec import GridFigure, Row, without_controls
from gleak.experiments.labels import AxisLabels
from gleak.metrics.score_table import LEVEL_COLUMNS


class SampleFigure(GridFigure):
    """A figure that shows some samples of some victims, and what attacks made of them."""

    needs: ClassVar[Literal["scores", "reconstructions"]] = "reconstructions"

    victims: int = parameter(4, "victims shown of each cell, the first ones", ge=1)
    samples: int = parameter(1, "samples shown of each victim", ge=1)
    pick: Literal["first", "best", "worst", "both"] = parameter(
        "first", "which samples; both: so many of the best, and then of the worst"
    )
    metric: str = parameter("mse", "number under each result, by which the best and worst are told")

    @property
    def used_metrics(self) -> Sequence[str]:
        """The one that samples are told by."""
        return [self.metric]

    @property
    def used_axes(self) -> Sequence[str]:
        """Every cell has rows of its own."""
        return LEVEL_COLUMNS

    @property
    def course(self) -> int | None:
        """Snapshots of a search that are shown besides its start; None: its end alone."""
        return None

    def check(self, names: AxisLabels, rows: Sequence[Row]) -> None:
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

    def chosen(self, names: AxisLabels, rows: Sequence[Row]) -> list[Row]:
        """As in `GridFigure.chosen`, without the controls: they have no search to show."""
        return without_controls(super().chosen(names, rows))
