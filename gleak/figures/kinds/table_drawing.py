"""Drawing of tables of scores and of attacks."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from gleak.core.errors import SpecError
from gleak.core.numbers import DASH, REFUSED, format_number, format_value
from gleak.core.spec import Spec
from gleak.figures.canvas.style import save_numbers
from gleak.figures.canvas.text_table import write_forms
from gleak.figures.intervals import mean_interval
from gleak.figures.kinds.attack_table import ATTACK, Attacks
from gleak.figures.kinds.result_table import METRIC, Table
from gleak.figures.published import add_published
from gleak.figures.statistics import (
    CELL,
    Row,
    band_over_victims,
    cells_of,
    records,
    spread_over_victims,
    summarise,
    table_of,
    why_missing,
    worse_than_blind,
)
from gleak.metrics.base import MetricSpec
from gleak.studies.axes import Axis
from gleak.studies.axis_labels import AxisLabels, read_metric
from gleak.studies.cell import Cell
from gleak.studies.figure_spec import FigureData, Over, Statistic

OURS, PAPER, ALONE = "ours", "paper", ""
MARK, FAILED, WORSE, INCOMPARABLE = "*", "†", "▾", "‡"
UNCERTAIN = ["spread", "low", "high"]
NUMBERS = ["metric", "statistic", "over", "failed", "ours", *UNCERTAIN, "victims", "worse"]
BOOKS = ["published", "incomparable", "count", "rows", "stand_in", "reason"]


def draw_table(figure: Table, material: FigureData, stem: Path) -> None:
    """Write a table of scores in all its formats."""
    long = summarise_table(figure, material)
    save_numbers(long[[*CELL, *NUMBERS, *BOOKS]], stem)
    note = explain(long, material.names)
    told = [f"{heading}: {text}" for heading, text in material.conditions.items()]
    lines = "\n".join(filter(None, [note, *told]))
    write_forms(lay_out(figure, material.names, long), lines, stem)


def summarise_table(figure: Table, material: FigureData) -> pd.DataFrame:
    """Compute the long form: one row per cell and metric, in the order of the study."""
    names, scores = material.names, material.scores
    chosen = table_of(figure.chosen(names, cells_of(scores)))
    long = chosen.merge(pd.concat(_summarise(figure, scores, *entry) for entry in figure.entries))
    axes = [*figure.rows, *figure.columns]
    ranked = sorted(records(long), key=lambda row: _ranks(axes, figure, names, row))
    return add_published(pd.DataFrame(ranked), material.published, names)


def _summarise(
    figure: Table, scores: pd.DataFrame, shown: str, statistic: Statistic
) -> pd.DataFrame:
    """Compute one statistic of each cell, its spread, and whether it is worse than blind."""
    metric, over = read_metric(shown), figure.over.get(shown, "all")
    summary = summarise(scores, metric, statistic, over)
    summary["worse"] = worse_than_blind(summary, metric)
    joined = summary.merge(_spread(figure, scores, metric, over), on=CELL, how="left")
    blank = dict.fromkeys(UNCERTAIN, math.nan)
    return joined.assign(shown=shown, **({} if statistic == "mean" else blank))


def _spread(figure: Table, scores: pd.DataFrame, metric: MetricSpec, over: Over) -> pd.DataFrame:
    """Compute the standard deviation of each cell over victims, or the interval of its mean."""
    spread = spread_over_victims(scores, metric, over)
    if not figure.intervals:
        return spread.assign(low=math.nan, high=math.nan)
    ends = band_over_victims(scores, metric, over, partial(mean_interval, binary=metric.binary))
    return spread.assign(spread=math.nan).merge(ends, on=CELL)


def _ranks(axes: list[str], figure: Table, names: AxisLabels, row: Row) -> list[int]:
    """Return the index of a row along each axis, in the order of the study."""
    return [
        figure.entries.index((row["shown"], row["statistic"]))
        if axis == METRIC
        else _rank(Axis.read(axis), names, row["cell"])
        for axis in axes
    ]


def _rank(axis: Axis, names: AxisLabels, cell: Cell) -> int:
    return names.axis(axis.level).index(axis.spec(cell))


def lay_out(figure: Table, names: AxisLabels, long: pd.DataFrame) -> pd.DataFrame:
    """Arrange the numbers as texts in rows and columns.

    Args:
        figure: axes of the rows and columns.
        names: labels of the grid.
        long: from `summarise_table`.

    Returns:
        Index: labels of the rows; columns: labels of the columns, and ours or paper where the paper
        has values. Rows and columns without any value are left out, unless all are.

    Raises:
        SpecError: if two cells have the same labels.
    """
    rows = records(long)
    across = sorted(rows, key=lambda row: _ranks(figure.columns, figure, names, row))
    index = list(dict.fromkeys(_labels(figure.rows, names, row) for row in rows))
    heads = list(
        dict.fromkeys(_labels(figure.columns, names, row, Axis.label_alone) for row in across)
    )
    columns = [(*head, source) for head in heads for source in (OURS, PAPER)]
    texts = _texts(figure, names, rows, usual_number(long))
    cells = pd.DataFrame(
        [[texts.get((*line, *column), DASH) for column in columns] for line in index],
        index=pd.MultiIndex.from_tuples(
            index, names=[Axis.read(a).title(names) for a in figure.rows]
        ),
        columns=pd.MultiIndex.from_tuples(columns),
    )
    return _without_empty(cells)


def _texts(
    figure: Table, names: AxisLabels, rows: list[Row], usual: int
) -> dict[tuple[str, ...], str]:
    """Return the texts of the cells by the labels of their row and column, ours and the paper's."""
    texts: dict[tuple[str, ...], str] = {}
    for row in rows:
        key = (
            *_labels(figure.rows, names, row),
            *_labels(figure.columns, names, row, Axis.label_alone),
        )
        if (*key, OURS) in texts:
            raise SpecError(f"two cells are labelled {' / '.join(key)}: give them different labels")
        texts[*key, OURS] = _text(row, usual)
        texts[*key, PAPER] = (
            INCOMPARABLE if row["incomparable"] else format_number(row["published"])
        )
    return texts


def _text(row: Row, usual: int) -> str:
    """Return the number of a cell with its spread, an unusual number of victims, and its marks."""
    text = format_value(row["ours"], row["reason"])
    if math.isnan(row["ours"]):
        return text
    if not math.isnan(row["spread"]):
        text += f" ± {_two_digits(row['spread'])}"
    if not math.isnan(row["low"]):
        text += f" [{format_number(row['low'])}, {format_number(row['high'])}]"
    if row["victims"] > 0 and row["victims"] != usual:
        text += f" ({row['victims']:.0f})"
    return text + FAILED * row["failed"] + f" {WORSE}" * row["worse"]


def _two_digits(value: float) -> str:
    return format_number(float(f"{value:.1e}"))


def usual_number(long: pd.DataFrame) -> int:
    """Return the number of victims that most means are over; 0 if there are no victims."""
    counted = long["victims"].dropna()
    return 0 if counted.empty else int(counted.mode().iloc[0])


def _without_empty(cells: pd.DataFrame) -> pd.DataFrame:
    """Return a table without its empty rows and columns; of an empty table only our columns."""
    filled = (cells != DASH).to_numpy(dtype=bool)
    if not filled.any():
        return _headed(cells.loc[:, [key[-1] == OURS for key in cells.columns]])
    lines = [i for i, row in enumerate(filled) if row.any()]
    columns = [j for j, column in enumerate(filled.T) if column.any()]
    return _headed(cells.iloc[lines, columns])


def _headed(cells: pd.DataFrame) -> pd.DataFrame:
    """Head columns with ours only where the paper's stands beside; drop the level if nowhere."""
    keys: list[Any] = list(cells.columns)
    paired = {key[:-1] for key in keys if key[-1] == PAPER}
    heads = [key if key[:-1] in paired else (*key[:-1], ALONE) for key in keys]
    if not paired:
        heads = [key[:-1] for key in heads]
    return cells.set_axis(pd.MultiIndex.from_tuples(heads), axis=1)


def _labels(
    axes: list[str],
    names: AxisLabels,
    row: Row,
    label: Callable[[Axis, AxisLabels, Spec], str] = Axis.label,
) -> tuple[str, ...]:
    read = ((text, Axis.read(text)) for text in axes)
    return tuple(
        _metric(names, row) if text == METRIC else label(axis, names, axis.spec(row["cell"]))
        for text, axis in read
    )


def _metric(names: AxisLabels, row: Row) -> str:
    mark = "" if row["over"] == "all" else MARK
    statistic = "" if row["statistic"] == "mean" else f"{row['statistic']} "
    return f"{statistic}{names.metric(row['shown'])}{mark}"


def explain(long: pd.DataFrame, names: AxisLabels) -> str:
    """Explain the signs of a table, its numbers of victims, and which metrics have no value."""
    usual = usual_number(long)
    unit = "victim" if long["client"].any() else "network"
    victims = f"n = {usual} {unit if usual == 1 else f'{unit}s'}"
    shown = long[long["ours"].notna()]
    missing = [metric for metric, ours in long.groupby("shown")["ours"] if ours.isna().all()]
    reasons = [f"{names.metric(str(metric))} {why_missing(str(metric))}" for metric in missing]
    signs = {
        victims: usual > 0,
        "(n) where another number": (shown["victims"].dropna() != usual).any(),
        f"± standard deviation over {unit}s": long["spread"].notna().any(),
        f"[low, high] 95% confidence interval over {unit}s": long["low"].notna().any(),
        f"{MARK} over successful reconstructions": (long["over"] != "all").any(),
        f"{FAILED} none succeeded: over the failed, at their last iteration": long["failed"].any(),
        f"{WORSE} worse than the blind control, which uses no update": shown["worse"].any(),
        f"{INCOMPARABLE} not comparable: {'; '.join(_reasons(long))}": bool(_reasons(long)),
        f"{DASH} no value": long["ours"].isna().any(),
        f"{REFUSED} {'; '.join(filter(None, long['reason'].unique()))}": long["reason"].any(),
        "; ".join(reasons): bool(missing),
    }
    return "".join(f"{sentence}. " for sentence, needed in signs.items() if needed).strip()


def _reasons(long: pd.DataFrame) -> list[str]:
    """Return why published values are not comparable, each reason once."""
    return [str(reason) for reason in long["incomparable"].unique() if reason]


def draw_attacks(figure: Attacks, stem: Path) -> None:
    """Write a table of attacks in all its formats; texts in the CSV have no labels."""
    table = [{key: ", ".join(texts) for key, texts in row.items()} for row in figure.facts]
    save_numbers(pd.DataFrame(table), stem)
    write_forms(lay_out_attacks(figure), f"{DASH} none.", stem, align="left")


def lay_out_attacks(figure: Attacks) -> pd.DataFrame:
    """Arrange the properties of attacks as labelled texts.

    Returns:
        Index: the attacks; columns: their properties.
    """
    label, facts = figure.label, figure.facts
    keys = [key for key in facts[0] if key != ATTACK]
    return pd.DataFrame(
        [[", ".join(dict.fromkeys(map(label, row[key]))) or DASH for key in keys] for row in facts],
        index=pd.MultiIndex.from_tuples(
            [(label(text),) for text in figure.attacks], names=[label(ATTACK)]
        ),
        columns=pd.MultiIndex.from_tuples([(label(key),) for key in keys]),
    )
