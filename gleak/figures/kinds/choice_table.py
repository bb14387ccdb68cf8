"""Table of the attacks that an ensemble chose in each cell."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from pydantic import Field

from gleak.core.lazy import pandas as pd
from gleak.core.numbers import DASH, REFUSED
from gleak.core.registry import register
from gleak.figures.canvas.style import save_numbers
from gleak.figures.canvas.tables import write_table
from gleak.figures.statistics import CELL, Row, chosen_cells, counted, records, refusals
from gleak.studies.axis_labels import Axis, AxisLabels
from gleak.studies.figure_spec import TABLE_SUFFIXES, FigureData, GridFigure

CHOSEN = "chosen"


@register("choices")
class Choices(GridFigure):
    """Attacks that an ensemble such as `best` chose, with the number of victims, in each cell."""

    suffixes: ClassVar[tuple[str, ...]] = TABLE_SUFFIXES
    shows_controls: ClassVar[bool] = False

    rows: list[str] = Field(description="axes told apart by rows, outermost first", min_length=1)
    columns: list[str] = Field(
        description="axes told apart by columns, outermost first", min_length=1
    )

    @property
    def reading(self) -> str:
        return (
            "Entries are the attacks whose candidates were chosen, and for how many victims of how "
            "many for which they proposed one."
        )

    @property
    def used_metrics(self) -> Sequence[str]:
        return [CHOSEN]

    @property
    def used_axes(self) -> Sequence[str]:
        return [*self.rows, *self.columns]

    def draw(self, material: FigureData, stem: Path) -> None:
        counts = count_choices(self, material)
        save_numbers(counts[[*CELL, "member", "chosen", "proposed", "reason"]], stem)
        reasons = [str(reason) for reason in counts["reason"].unique() if reason]
        write_table(
            self.lay_out(counts, material.names),
            stem,
            [f"{DASH} no candidates.", *(f"{REFUSED} {reason}." for reason in reasons)],
            heading=(self.title, self.reproduces),
            conditions=material.conditions,
            align="left",
        )

    def lay_out(self, counts: pd.DataFrame, names: AxisLabels) -> pd.DataFrame:
        """Arrange the attacks that were chosen as texts in the rows and columns of the table."""
        rows, columns = (list(map(Axis.read, texts)) for texts in (self.rows, self.columns))

        def rank(axes: Sequence[Axis], row: Row) -> list[int]:
            return [names.axis(axis.level).index(axis.spec(row["cell"])) for axis in axes]

        texts: dict[tuple[tuple[str, ...], tuple[str, ...]], list[str]] = {}
        heads: dict[tuple[str, ...], list[int]] = {}
        for row in sorted(records(counts), key=lambda row: (rank(rows, row), -row["chosen"])):
            line = tuple(axis.label(names, axis.spec(row["cell"])) for axis in rows)
            head = tuple(axis.label_alone(names, axis.spec(row["cell"])) for axis in columns)
            heads.setdefault(head, rank(columns, row))
            shown = texts.setdefault((line, head), [])
            if row["chosen"]:
                label = names.labels.get(row["member"], row["member"])
                shown.append(f"{label} {row['chosen']:.0f}/{row['proposed']:.0f}")
            elif row["reason"]:
                shown.append(REFUSED)
        lines = list(dict.fromkeys(line for line, _ in texts))
        across = sorted(heads, key=lambda head: heads[head])
        entries = [
            [", ".join(texts.get((line, head), ())) or DASH for head in across] for line in lines
        ]
        index = pd.MultiIndex.from_tuples(lines, names=[axis.title(names) for axis in rows])
        return pd.DataFrame(entries, index, pd.MultiIndex.from_tuples(across))


def count_choices(figure: GridFigure, material: FigureData) -> pd.DataFrame:
    """Count the victims of each cell for which an attack proposed something, and was chosen.

    Returns:
        The cells with columns member (name of the attack), chosen, proposed and reason (of the
        refusal); one row without a member for cells without candidates.
    """
    scores, prefix = material.scores, f"{CHOSEN}+attack="
    metrics = [name for name in scores["metric"].unique() if str(name).startswith(prefix)]
    tables = [
        counted(scores, name, "all")
        .groupby(CELL)["value"]
        .agg(chosen="sum", proposed="size")
        .assign(member=name.removeprefix(prefix))
        .reset_index()
        for name in metrics
    ]
    empty = pd.DataFrame(columns=[*CELL, "chosen", "proposed", "member"])
    counts = chosen_cells(figure, material).merge(pd.concat([empty, *tables]), "left", CELL)
    counts = counts.fillna({"chosen": 0, "proposed": 0, "member": ""})
    reasons = refusals(scores).rename("reason").reset_index()
    return counts.merge(reasons, "left", CELL).fillna({"reason": ""})
