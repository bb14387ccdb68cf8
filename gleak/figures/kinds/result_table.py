"""Tables of scores: our number and the paper's side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Self

from pydantic import BeforeValidator, Field, model_validator
from typing_extensions import override

from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.studies.figure_spec import (
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
    """Statistics of metrics in the rows and columns of the paper's table."""

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

    intervals: bool = parameter(
        False, "means with their 95% confidence intervals over victims, not standard deviations"
    )

    @property
    @override
    def reading(self) -> str:
        behind = (
            "in brackets are 95% confidence intervals over victims"
            if self.intervals
            else "± is the standard deviation over victims"
        )
        return (
            f"Entries are means unless another statistic is named; {behind}, n the number of "
            "victims in a mean."
        )

    @property
    def entries(self) -> list[tuple[str, Statistic]]:
        """Pairs of metric and statistic that are shown, the values of the axis metric."""
        return [(m, stat) for m in self.metrics for stat in self.statistics.get(m, ["mean"])]

    @property
    @override
    def used_metrics(self) -> Sequence[str]:
        return [*self.metrics, *self.statistics, *self.over]

    @property
    @override
    def used_axes(self) -> Sequence[str]:
        return [axis for axis in (*self.rows, *self.columns) if axis != METRIC]

    @model_validator(mode="after")
    def _check_layout(self) -> Self:
        axes = [*self.rows, *self.columns]
        if len(set(axes)) < len(axes):
            raise ValueError(f"rows {self.rows}, columns {self.columns} repeat an axis")
        if not self.rows or not self.columns:
            raise ValueError("a table needs at least one axis in rows and one in columns")
        if len(set(self.entries)) < len(self.entries):
            raise ValueError("a statistic of a metric is given twice")
        if METRIC not in axes and len(self.entries) > 1:
            raise ValueError(
                f"{len(self.entries)} numbers per cell are shown: put metric in rows or columns"
            )
        unshown = sorted({*self.statistics, *self.over} - set(self.metrics))
        if unshown:
            raise ValueError(f"statistics or over name {unshown}, which are not in metrics")
        return self

    @override
    def draw(self, material: FigureData, stem: Path) -> None:
        from gleak.figures.kinds.table_drawing import draw_table

        draw_table(self, material, stem)
