"""Tables: our number and the paper's side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Self

from pydantic import BeforeValidator, Field, model_validator
from typing_extensions import override

from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.experiments.figure_spec import (
    TABLE_SUFFIXES,
    FigureData,
    GridFigure,
    Over,
    Statistic,
    as_list,
)

METRIC = "metric"
Statistics = Annotated[list[Statistic], BeforeValidator(as_list), Field(min_length=1)]


@register("table")
class Table(GridFigure):
    """Statistics of metrics, laid out in rows and columns as the paper does."""

    suffixes: ClassVar[tuple[str, ...]] = TABLE_SUFFIXES

    rows: list[str] = Field(description="axes told apart by rows, outermost first; or metric")
    columns: list[str] = Field(description="axes told apart by columns, outermost first; or metric")
    metrics: list[str] = Field(description="the metrics, in order", min_length=1)
    statistics: dict[str, Statistics] = parameter(
        {},
        "metric: statistic, or a list of them; the mean where none is given; best is the mean of "
        "each victim's best sample",
    )
    over: dict[str, Over] = parameter(
        {}, "metric: all (default), successful, or successful_else_all (all where none succeeded)"
    )

    @property
    def entries(self) -> list[tuple[str, Statistic]]:
        """Each metric and statistic that is shown: what stands along the axis metric."""
        return [(m, stat) for m in self.metrics for stat in self.statistics.get(m, ["mean"])]

    @property
    def used_metrics(self) -> Sequence[str]:
        """Those shown, and those that the choices are about."""
        return [*self.metrics, *self.statistics, *self.over]

    @property
    def used_axes(self) -> Sequence[str]:
        """Rows and columns, without the place of the metrics."""
        return [axis for axis in (*self.rows, *self.columns) if axis != METRIC]

    @model_validator(mode="after")
    def _check_layout(self) -> Self:
        places = [*self.rows, *self.columns]
        if len(set(places)) < len(places):
            raise ValueError(f"an axis stands twice in rows {self.rows}, columns {self.columns}")
        if not self.rows or not self.columns:
            raise ValueError("a table needs at least one axis in rows and one in columns")
        if len(set(self.entries)) < len(self.entries):
            raise ValueError("a statistic of a metric is shown twice")
        if METRIC not in places and len(self.entries) > 1:
            raise ValueError(
                f"{len(self.entries)} numbers of a cell are shown: put metric in rows or columns"
            )
        unshown = sorted({*self.statistics, *self.over} - set(self.metrics))
        if unshown:
            raise ValueError(f"statistics or over name {unshown}, which metrics does not")
        return self

    @override
    def draw(self, material: FigureData, stem: Path) -> None:
        from gleak.figures.table_drawing import draw_table

        draw_table(self, material, stem)
