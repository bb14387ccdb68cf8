"""Tables of verdicts on defences: which leak, which hide."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar

from pydantic import Field

from gleak.core.errors import SpecError
from gleak.core.lazy import pandas as pd
from gleak.core.numbers import DASH, REFUSED, format_number
from gleak.core.registry import register
from gleak.figures.canvas.style import save_numbers
from gleak.figures.canvas.tables import write_table
from gleak.figures.evidence import fill_with_blind, values_by_cell
from gleak.figures.leaks import Finding, find_leaks
from gleak.figures.statistics import CELL, Row, chosen_cells, records, refusals
from gleak.studies.axis_labels import Axis, AxisLabels, read_metric
from gleak.studies.cell import levels_of
from gleak.studies.figure_spec import TABLE_SUFFIXES, FigureData, GridFigure
from gleak.studies.gates import Gates

MEANING = {
    "leaks": "leaks: the attack is above blind by more than the margin",
    "hides": "hides: it is not, and it is at a weaker strength of the same defence",
    "under-attacked": "under-attacked: the same victims leak more under a stronger defence, so "
    "there is no verdict",
    "cannot tell": "cannot tell: neither, or no weaker strength is known to leak",
}


@register("verdicts")
class Verdicts(GridFigure):
    """Verdicts on the defences of a grid by its gates, with the attack's distance from blind."""

    suffixes: ClassVar[tuple[str, ...]] = TABLE_SUFFIXES
    shows_controls: ClassVar[bool] = False

    rows: list[str] = Field(description="axes told apart by rows, outermost first", min_length=1)
    columns: list[str] = Field(
        description="axes told apart by columns, outermost first", min_length=1
    )
    metric: str = Field(description="metric that has a margin in the gates of the grid")

    @property
    def reading(self) -> str:
        return (
            "Each entry is a verdict, and in brackets the 95% confidence interval of how much "
            "better the attack is than blind, zero if it is worse; rules and margins are those of "
            "the grid's gates."
        )

    @property
    def used_metrics(self) -> Sequence[str]:
        return [self.metric]

    @property
    def used_axes(self) -> Sequence[str]:
        return [*self.rows, *self.columns]

    def check_gates(self, gates: Gates | None) -> None:
        if gates is None or gates.margin(self.metric) is None:
            raise SpecError(
                f"grid {self.grid!r} has no gates with a margin of {self.metric!r}; add them"
            )

    def draw(self, material: FigureData, stem: Path) -> None:
        assert material.gates is not None
        found = tabulate_findings(self, material, material.gates)
        save_numbers(found[[*CELL, *NUMBERS, "reason"]], stem)
        write_table(
            _lay_out(self, material.names, found),
            stem,
            _notes(self, material, found),
            heading=(self.title, self.reproduces),
            conditions=material.conditions,
            align="left",
        )


NUMBERS = ["verdict", "why", "above", "low", "high", "n"]


def tabulate_findings(figure: Verdicts, material: FigureData, gates: Gates) -> pd.DataFrame:
    """Return one row per cell shown: `CELL`, `NUMBERS`, ``cell``, ``reason`` of a refusal."""
    metric, names = read_metric(figure.metric), material.names
    values = values_by_cell(fill_with_blind(material.scores, metric), metric)
    findings, refused = find_leaks(gates, figure.metric, values, names), refusals(material.scores)
    shown = chosen_cells(figure, material)
    rows = [_numbers(findings.get(cell)) for cell in shown["cell"]]
    told = [refused.get(tuple(levels_of(cell).values()), "") for cell in shown["cell"]]
    numbers = pd.DataFrame(rows, shown.index, columns=NUMBERS)
    return shown.join(numbers).assign(reason=told)


def _numbers(finding: Finding | None) -> list[object]:
    if finding is None:
        return ["no data", "", *[float("nan")] * 3, 0]
    above = finding.above
    return [finding.leak, finding.reason, above.value, *finding.interval, above.n]


def _lay_out(figure: Verdicts, names: AxisLabels, found: pd.DataFrame) -> pd.DataFrame:
    """Arrange the verdicts in rows and columns, in the order of the study."""

    def label(axes: Sequence[str], row: Row) -> tuple[str, ...]:
        read = map(Axis.read, axes)
        return tuple(axis.label_alone(names, axis.spec(row["cell"])) for axis in read)

    def place(axes: Sequence[str], row: Row) -> list[int]:
        read = map(Axis.read, axes)
        return [names.axis(axis.level).index(axis.spec(row["cell"])) for axis in read]

    rows = records(found)
    texts = {(label(figure.rows, row), label(figure.columns, row)): _text(row) for row in rows}
    lines, heads = (
        list(dict.fromkeys(label(axes, row) for row in sorted(rows, key=partial(place, axes))))
        for axes in (figure.rows, figure.columns)
    )
    titles = [Axis.read(text).title(names) for text in figure.rows]
    return pd.DataFrame(
        [[texts.get((line, head), DASH) for head in heads] for line in lines],
        pd.MultiIndex.from_tuples(lines, names=titles),
        pd.MultiIndex.from_tuples(heads),
    )


def _text(row: Row) -> str:
    if row["verdict"] == "no data":
        return REFUSED if row["reason"] else DASH
    return f"{row['verdict']} [{format_number(row['low'])}, {format_number(row['high'])}]"


def _notes(figure: Verdicts, material: FigureData, found: pd.DataFrame) -> list[str]:
    assert material.gates is not None
    margin = format_number(material.gates.margin(figure.metric) or 0.0)
    notes = [f"{material.names.metric(figure.metric)}, margin {margin}."]
    given = set(found["verdict"])
    notes += [f"{text}." for verdict, text in MEANING.items() if verdict in given]
    notes += [f"{DASH} no value."] if "no data" in given else []
    reasons = [str(reason) for reason in found["reason"].unique() if reason]
    return notes + ([f"{REFUSED} {'; '.join(reasons)}."] if reasons else [])
