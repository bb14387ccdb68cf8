"""Drawing of tables of scores and of attacks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd

from gleak.core.errors import SpecError
from gleak.core.numbers import DASH, REFUSED, format_number, format_value
from gleak.core.spec import Spec
from gleak.experiments.axes import Axis
from gleak.experiments.axis_labels import AxisLabels, read_metric
from gleak.experiments.cell import Cell
from gleak.experiments.figure_spec import FigureData
from gleak.figures.canvas.style import save_numbers
from gleak.figures.canvas.text_table import write_forms
from gleak.figures.kinds.attack_table import ATTACK, Attacks
from gleak.figures.kinds.result_table import METRIC, Table
from gleak.figures.published import add_published
from gleak.figures.statistics import CELL, Row, cells_of, records, summarise, table_of

OURS, PAPER = "ours", "paper"
MARK, FAILED = "*", "†"
NUMBERS = ["metric", "statistic", "over", "failed", "ours", "published"]
BOOKS = ["count", "rows", "stand_in", "reason"]


def draw_table(figure: Table, material: FigureData, stem: Path) -> None:
    """Write a table of scores in all its formats."""
    long = summarise_table(figure, material)
    save_numbers(long[[*CELL, *NUMBERS, *BOOKS]], stem)
    write_forms(lay_out(figure, material.names, long), _note(long), stem)


def summarise_table(figure: Table, material: FigureData) -> pd.DataFrame:
    """Compute the long form: one row per cell and metric, in the order of the study."""
    names, scores = material.names, material.scores
    chosen = table_of(figure.chosen(names, cells_of(scores)))
    summaries = [
        summarise(
            scores,
            read_metric(metric),
            statistic,
            figure.over.get(metric, "all"),
        ).assign(shown=metric)
        for metric, statistic in figure.entries
    ]
    long = chosen.merge(pd.concat(summaries))
    axes = [*figure.rows, *figure.columns]
    ranked = sorted(records(long), key=lambda row: _ranks(axes, figure, names, row))
    return add_published(pd.DataFrame(ranked), material.published, names)


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
        Index: labels of the rows; columns: labels of the columns and ours or paper. Columns of the
        paper without any value are dropped, and so are rows without any value, unless all are.

    Raises:
        SpecError: if two cells have the same labels.
    """
    rows = records(long)
    across = sorted(rows, key=lambda row: _ranks(figure.columns, figure, names, row))
    texts: dict[tuple[str, ...], str] = {}
    for row in rows:
        key = (
            *_labels(figure.rows, names, row),
            *_labels(figure.columns, names, row, Axis.label_alone),
        )
        if (*key, OURS) in texts:
            raise SpecError(f"two cells are labelled {' / '.join(key)}: give them different labels")
        texts[*key, OURS] = format_value(row["ours"], row["reason"]) + FAILED * row["failed"]
        texts[*key, PAPER] = format_number(row["published"])
    index = list(dict.fromkeys(_labels(figure.rows, names, row) for row in rows))
    heads = list(
        dict.fromkeys(_labels(figure.columns, names, row, Axis.label_alone) for row in across)
    )
    columns = [(*head, source) for head in heads for source in (OURS, PAPER)]
    cells = pd.DataFrame(
        [[texts.get((*line, *column), DASH) for column in columns] for line in index],
        index=pd.MultiIndex.from_tuples(
            index, names=[Axis.read(a).title(names) for a in figure.rows]
        ),
        columns=pd.MultiIndex.from_tuples(columns),
    )
    filled = (cells != DASH).to_numpy(dtype=bool)
    shown = [j for j, key in enumerate(columns) if key[-1] == OURS or filled[:, j].any()]
    lines = [i for i, row in enumerate(filled) if row.any()]
    return cells.iloc[lines or list(range(len(cells))), shown]


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


def _note(long: pd.DataFrame) -> str:
    """Explain the signs that are used in a table."""
    signs = {
        f"{MARK} over successful reconstructions": (long["over"] != "all").any(),
        f"{FAILED} none succeeded: over the failed, at their last iteration": long["failed"].any(),
        f"{DASH} no value": True,
        f"{REFUSED} {'; '.join(filter(None, long['reason'].unique()))}": long["reason"].any(),
    }
    return "".join(f"{sentence}. " for sentence, needed in signs.items() if needed).strip()


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
