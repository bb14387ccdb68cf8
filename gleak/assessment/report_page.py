"""``report.html``: the report as one page that needs no other file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from gleak.assessment.assembling import worst_cell
from gleak.assessment.charts import Charts, charts_of
from gleak.assessment.drawing import sample_uri
from gleak.assessment.findings import Exposure, Loss, Mean, Report
from gleak.assessment.generated_study import CAPTURED, CRAFTED, DEPLOYED
from gleak.assessment.measured import Measured
from gleak.assessment.table_columns import columns_of
from gleak.core.numbers import DASH
from gleak.studies.cell import Cell

SHOWN_CLIENTS = 3
SHOWN_COLUMNS = 40
TEMPLATE = "report.html.j2"


@dataclass(frozen=True)
class Shown:
    """A true sample and its reconstruction, for the page.

    Args:
        caption: client, metric and its value.
        truth, found: data URIs; ``truth`` is empty if it is unknown.
    """

    caption: str
    truth: str
    found: str


@dataclass(frozen=True)
class Record:
    """A true record of a table and its reconstruction, for the page.

    Args:
        caption: client, metric and its value.
        rows: the first columns of the table: name, true, recovered and guessed value.
        columns: number of all columns.
    """

    caption: str
    rows: Sequence[tuple[str, ...]]
    columns: int


def render(report: Report, measured: Measured) -> str:
    """Return the HTML of a report.

    Args:
        report: all numbers of the page.
        measured: for the pictures of samples.
    """
    varied = [*report.variations, *report.captured_rounds]
    charts = {each.field: charts_of(each) for each in varied}
    pictures = [*shown_samples(report, measured), *unchecked_samples(measured)]
    records = list(shown_records(report, measured))
    if not report.deployment["pictures"]:
        pictures, records = [], []
    return page_of(report, pictures, records, charts)


def page_of(
    report: Report,
    shown: Sequence[Shown],
    records: Sequence[Record],
    charts: Mapping[str, Mapping[str, Charts]],
) -> str:
    """Return the HTML of a report with given samples.

    Args:
        report: all numbers of the page.
        shown: images and their reconstructions.
        records: records of tables and their reconstructions.
        charts: what varies -> metric -> its pictures.
    """
    return _template().render(report=report, shown=shown, records=records, charts=charts)


def shown_samples(report: Report, measured: Measured) -> Iterator[Shown]:
    """Yield the images that are recovered best, of the strongest attack of each kind."""
    for cell, exposure in _strongest(report, measured, "image"):
        for loss in _found(exposure)[:SHOWN_CLIENTS]:
            pair = measured.pair(cell, loss.client, loss.sample)
            caption = _caption(exposure, loss)
            yield Shown(caption, sample_uri(pair.truth), sample_uri(pair.found))


def shown_records(report: Report, measured: Measured) -> Iterator[Record]:
    """Yield the record of a table that is recovered best, of the strongest attack of each kind."""
    for cell, exposure in _strongest(report, measured, "tabular"):
        for loss in _found(exposure)[:1]:
            pair = measured.pair(cell, loss.client, loss.sample)
            guess = measured.guess(cell, loss.client, loss.sample)
            columns = columns_of(measured.dataset(cell))
            rows = [
                (column.name, *map(column.text, (pair.truth, pair.found, guess)))
                for column in columns[:SHOWN_COLUMNS]
            ]
            yield Record(_caption(exposure, loss), rows, len(columns))


def _strongest(
    report: Report, measured: Measured, modality: str
) -> Iterator[tuple[Cell, Exposure]]:
    """Yield the cell of the strongest attack of each kind on samples of a modality."""
    for grid, found in (
        (DEPLOYED, report.exposures),
        (CAPTURED, report.captured),
        (CRAFTED, report.crafted),
    ):
        cell = worst_cell(measured, grid, found)
        if cell is not None and cell.dataset.modality == modality:
            yield cell, found[0]


def _found(exposure: Exposure) -> list[Loss]:
    return [loss for loss in exposure.losses if loss.found]


def _caption(exposure: Exposure, loss: Loss) -> str:
    return (
        f"Client {loss.client}, {exposure.attack}: {exposure.metric} {format_number(loss.value)} "
        f"(the client's best guess without the update: {format_number(loss.blind)})"
    )


def unchecked_samples(measured: Measured) -> Iterator[Shown]:
    """Yield the first samples that attacks recovered of captures without true samples."""
    for cell in measured.unscored:
        if cell.dataset.modality == "image":
            found = measured.reconstruction(cell).inputs[:, 0]
            for client, sample in enumerate(found[:SHOWN_CLIENTS]):
                caption = f"Client {client} of {cell.captured.capture}, {cell.attack}"
                yield Shown(caption, "", sample_uri(sample))


def format_number(value: float | None) -> str:
    """Format a number with three significant digits; a dash if there is none."""
    return DASH if value is None else f"{value:.3g}"


def format_mean(mean: Mean) -> str:
    """Format a mean with its interval."""
    if mean.value is None:
        return DASH
    if mean.low is None or mean.high is None:
        return format_number(mean.value)
    return f"{format_number(mean.value)} [{format_number(mean.low)}, {format_number(mean.high)}]"


def format_percent(mean: Mean) -> str:
    """Format a share with its interval, in per cent."""
    if mean.value is None:
        return DASH
    text = f"{100 * mean.value:.0f}%"
    if mean.low is None or mean.high is None:
        return text
    return f"{text} [{100 * mean.low:.0f}%, {100 * mean.high:.0f}%]"


def format_spec(text: str) -> Markup:
    """Format a spec so that a line may end between its fields."""
    return Markup("+<wbr>").join(text.split("+"))


@cache
def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("gleak.assessment", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        mean=format_mean,
        percent=format_percent,
        number=format_number,
        spec=format_spec,
    )
    return environment.get_template(TEMPLATE)
