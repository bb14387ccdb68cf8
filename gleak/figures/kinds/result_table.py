"""Tables of scores: our number and the paper's side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Self

import numpy as np
from pydantic import BeforeValidator, Field, model_validator

from gleak.core.errors import SpecError
from gleak.core.lazy import pandas as pd
from gleak.core.numbers import DASH, REFUSED, format_number, format_value
from gleak.core.registry import register
from gleak.core.spec import Spec, parameter
from gleak.figures.canvas.style import save_numbers
from gleak.figures.canvas.tables import OURS, PAPER, write_table
from gleak.figures.published import add_published
from gleak.figures.statistics import (
    CELL,
    SETTING,
    Row,
    band_over_victims,
    chosen_cells,
    records,
    spread_over_victims,
    summarise,
    why_missing,
    worse_than_blind,
)
from gleak.studies.axis_labels import CONTROLS, Axis, AxisLabels, read_metric
from gleak.studies.figure_spec import (
    TABLE_SUFFIXES,
    FigureData,
    GridFigure,
    Over,
    Statistic,
    as_list,
)

METRIC = "metric"
MARK, FAILED, WORSE, INCOMPARABLE = "*", "†", "▾", "‡"
UNCERTAIN = ["spread", "low", "high"]
NUMBERS = ["metric", "statistic", "over", "failed", "ours", *UNCERTAIN, "victims", "worse"]
BOOKS = ["published", "incomparable", "count", "rows", "stand_in", "reason"]
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
        {}, "metric: all (default), successful, or successful_else_all (all if none succeeds)"
    )

    intervals: bool = parameter(
        False, "means with their 95% confidence intervals over victims, not standard deviations"
    )

    @property
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
    def used_metrics(self) -> Sequence[str]:
        return [*self.metrics, *self.statistics, *self.over]

    @property
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

    def draw(self, material: FigureData, stem: Path) -> None:
        long = summarise_table(self, material)
        save_numbers(long[[*CELL, *NUMBERS, *BOOKS]], stem)
        cells, bold = lay_out(self, material.names, long)
        write_table(
            cells,
            stem,
            explain(long, material.names),
            heading=(self.title, self.reproduces),
            conditions=material.conditions,
            bold=bold,
        )


def summarise_table(figure: Table, material: FigureData) -> pd.DataFrame:
    """Compute the long form: one row per cell and metric, in the order of the study."""
    names = material.names
    entries = [_summarise(figure, material.scores, *entry) for entry in figure.entries]
    long = chosen_cells(figure, material).merge(pd.concat(entries))
    axes = [*figure.rows, *figure.columns]
    ranked = sorted(records(long), key=lambda row: _ranks(axes, figure, names, row))
    return add_published(pd.DataFrame(ranked), material.published, names)


def _summarise(
    figure: Table, scores: pd.DataFrame, shown: str, statistic: Statistic
) -> pd.DataFrame:
    """Compute one statistic of each cell, and whether it is worse than blind.

    Means have the standard deviation over victims, or their interval.
    """
    metric, over = read_metric(shown), figure.over.get(shown, "all")
    summary = summarise(scores, metric, statistic, over)
    summary["worse"] = worse_than_blind(summary, metric)
    spread = spread_over_victims(scores, metric, over)
    if figure.intervals:
        bands = band_over_victims(scores, metric, over)
        spread = spread.drop(columns="spread").merge(bands, on=CELL)
    table = summary.merge(spread, on=CELL, how="left").assign(shown=shown)
    if statistic != "mean":
        table = table.drop(columns=UNCERTAIN, errors="ignore")
    return table.reindex(columns=[*summary, "victims", *UNCERTAIN, "shown"])


def _ranks(axes: list[str], figure: Table, names: AxisLabels, row: Row) -> list[int]:
    """Return the index of a row along each axis, in the order of the study."""
    return [
        figure.entries.index((row["shown"], row["statistic"]))
        if axis == METRIC
        else names.axis(Axis.read(axis).level).index(Axis.read(axis).spec(row["cell"]))
        for axis in axes
    ]


def lay_out(figure: Table, names: AxisLabels, long: pd.DataFrame) -> tuple[pd.DataFrame, ...]:
    """Arrange the numbers of `summarise_table` as texts in rows and columns.

    Returns:
        Texts, and whether each is the best of several attacks. Index: labels of the rows; columns:
        labels of the columns, and ours or paper where the paper has values. Rows and columns
        without any value are left out, unless all are.

    Raises:
        SpecError: if two cells have the same labels.
    """

    def labels(row: Row) -> tuple[str, ...]:
        across = _labels(figure.columns, names, row, Axis.label_alone)
        return (*_labels(figure.rows, names, row, Axis.label), *across)

    rows, usual = records(long.assign(best=is_best(long))), usual_number(long)
    texts: dict[tuple[str, ...], str] = {}
    best = set[tuple[str, ...]]()
    for row in rows:
        key = labels(row)
        if (*key, OURS) in texts:
            raise SpecError(f"two cells are labelled {' / '.join(key)}: give them different labels")
        texts[*key, OURS] = _text(row, usual)
        paper = INCOMPARABLE if row["incomparable"] else format_number(row["published"])
        texts[*key, PAPER] = paper
        if row["best"]:
            best.add((*key, OURS))
    depth = len(figure.rows)
    across = sorted(rows, key=lambda row: _ranks(figure.columns, figure, names, row))
    index = list(dict.fromkeys(key[:depth] for key in texts))
    heads = list(dict.fromkeys(labels(row)[depth:] for row in across))
    columns = [(*head, source) for head in heads for source in (OURS, PAPER)]
    keys = [[(*line, *column) for column in columns] for line in index]
    titles = [Axis.read(text).title(names) for text in figure.rows]
    lines = pd.MultiIndex.from_tuples(index, names=titles)
    cells = pd.DataFrame([[texts.get(key, DASH) for key in line] for line in keys], lines)
    bold = pd.DataFrame([[key in best for key in line] for line in keys], lines)
    filled = (cells != DASH).to_numpy(dtype=bool)
    if not filled.any():
        filled[:, ::2] = True
    kept = np.flatnonzero(filled.any(axis=1)), np.flatnonzero(filled.any(axis=0))
    shown = [columns[number] for number in kept[1]]
    paired = {key[:-1] for key in shown if key[-1] == PAPER}
    heads = [(*key[:-1], key[-1] if key[:-1] in paired else "") for key in shown]
    headings = pd.MultiIndex.from_tuples(heads if paired else [key[:-1] for key in heads])
    return tuple(frame.iloc[kept].set_axis(headings, axis=1) for frame in (cells, bold))


def is_best(long: pd.DataFrame) -> pd.Series:
    """Return True for the best attack on each setting, by each metric of reconstructions.

    There is none where the best is worse than the blind control, where all are equal, and of means
    over successful reconstructions, which attacks do not have in common.
    """
    specs = long["metric"].map(read_metric)
    compared = specs.map(lambda spec: spec.level == "attack" and spec.per == "sample")
    compared &= long["statistic"].isin(("mean", "median", "best")) & (long["over"] == "all")
    compared &= long["ours"].notna() & ~long["attack"].isin(CONTROLS)
    rows = long[compared]
    higher = specs[compared].map(lambda spec: spec.better == "higher")
    quality = rows["ours"].where(higher, -rows["ours"])
    groups = quality.groupby([rows[level] for level in ("metric", "statistic", *SETTING)])
    best = (quality == groups.transform("max")) & (quality > groups.transform("min"))
    return (best & ~rows["worse"]).reindex(long.index, fill_value=False)


def _text(row: Row, usual: int) -> str:
    """Return the number of a cell with its spread, an unusual number of victims, and its marks."""
    text = format_value(row["ours"], row["reason"])
    if math.isnan(row["ours"]):
        return text
    if not math.isnan(row["spread"]):
        text += f" ± {format_number(float(format(row['spread'], '.1e')))}"
    if not math.isnan(row["low"]):
        text += f" [{format_number(row['low'])}, {format_number(row['high'])}]"
    if row["victims"] > 0 and row["victims"] != usual:
        text += f" ({row['victims']:.0f})"
    return text + FAILED * row["failed"] + f" {WORSE}" * row["worse"]


def usual_number(long: pd.DataFrame) -> int:
    """Return the number of victims that most means are over; 0 if there are no victims."""
    counted = long["victims"].dropna()
    return 0 if counted.empty else int(counted.mode().iloc[0])


def _labels(
    axes: list[str], names: AxisLabels, row: Row, label: Callable[[Axis, AxisLabels, Spec], str]
) -> tuple[str, ...]:
    mark = "" if row["over"] == "all" else MARK
    statistic = "" if row["statistic"] == "mean" else f"{row['statistic']} "
    metric = f"{statistic}{names.metric(row['shown'])}{mark}"
    read = ((text, Axis.read(text)) for text in axes)
    return tuple(
        metric if text == METRIC else label(axis, names, axis.spec(row["cell"]))
        for text, axis in read
    )


def explain(long: pd.DataFrame, names: AxisLabels) -> list[str]:
    """Explain the signs of a table, its numbers of victims, and which metrics have no value."""
    usual = usual_number(long)
    unit = "victim" if long["client"].any() else "network"
    victims = f"n = {usual} {unit if usual == 1 else f'{unit}s'}"
    shown = long[long["ours"].notna()]
    missing = [metric for metric, ours in long.groupby("shown")["ours"] if ours.isna().all()]
    reasons = [f"{names.metric(str(metric))} {why_missing(str(metric))}" for metric in missing]
    incomparable = [str(reason) for reason in long["incomparable"].unique() if reason]
    refused = [str(reason) for reason in long["reason"].unique() if reason]
    signs = {
        victims: usual > 0,
        "(n) where another number": (shown["victims"].dropna() != usual).any(),
        f"± standard deviation over {unit}s": long["spread"].notna().any(),
        f"[low, high] 95% confidence interval over {unit}s": long["low"].notna().any(),
        "bold: the best attack on a setting": is_best(long).any(),
        f"{MARK} over successful reconstructions": (long["over"] != "all").any(),
        f"{FAILED} no successes; mean over failures, at their last iteration": long["failed"].any(),
        f"{WORSE} worse than the blind control, which uses no update": shown["worse"].any(),
        f"{INCOMPARABLE} not comparable: {'; '.join(incomparable)}": bool(incomparable),
        f"{DASH} no value": long["ours"].isna().any(),
        f"{REFUSED} {'; '.join(refused)}": bool(refused),
        "; ".join(reasons): bool(missing),
    }
    return [f"{sentence}." for sentence, needed in signs.items() if needed]
