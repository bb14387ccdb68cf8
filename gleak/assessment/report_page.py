"""``report.html``: the report as one page that needs no other file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from gleak.artifacts.dataset import Dataset
from gleak.assessment.charts import Charts, charts_of, sample_uri
from gleak.assessment.findings import Exposure, Loss, Report
from gleak.assessment.generated_study import CAPTURED, CRAFTED, DEPLOYED
from gleak.assessment.measured import Measured
from gleak.assessment.member_picture import member_strip
from gleak.assessment.strips import Strip, strips_of
from gleak.assessment.wording import (
    GLOSSARY,
    bare_name,
    change_in_words,
    duration,
    ends_in_percent,
    format_mean,
    format_percent,
    guarantee,
    readable,
    three_digits,
    verdict_in_words,
)
from gleak.studies.cell import Cell

SHOWN_CLIENTS = 3
SHOWN_COLUMNS = 40


@dataclass(frozen=True)
class ShownImage:
    """A true sample, empty if unknown, and its reconstruction, as data URIs for the page."""

    caption: str
    truth: str
    found: str


@dataclass(frozen=True)
class ShownRecord:
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
    """Return the HTML of a report, with pictures of the samples that were measured."""
    varied = [*report.variations, *report.captured_rounds]
    charts = {variation.field: charts_of(variation) for variation in varied}
    strips = list(strips_of(report))
    if not report.deployment["pictures"]:
        return page_of(report, [], [], charts, strips)
    pictures = [*_images(report, measured), *_unchecked_images(measured)]
    return page_of(report, pictures, list(_records(report, measured)), charts, strips)


def page_of(
    report: Report,
    shown: Sequence[ShownImage],
    records: Sequence[ShownRecord],
    charts: Mapping[str, Mapping[str, Charts]],
    strips: Sequence[Strip] = (),
) -> str:
    """Return the HTML of a report with images, records, charts by field and metric, and strips."""
    return _template().render(
        report=report,
        shown=shown,
        records=records,
        charts=charts,
        strips=strips,
        members=member_strip(report),
        glossary=GLOSSARY,
    )


def _images(report: Report, measured: Measured) -> Iterator[ShownImage]:
    """Yield the images that are recovered best, of the strongest attack of each kind."""
    for cell, exposure in _strongest(report, measured, "image"):
        recovered = [loss for loss in exposure.losses if loss.found]
        for loss in recovered[:SHOWN_CLIENTS]:
            pair = measured.pair(cell, loss.client, loss.sample)
            caption = _caption(exposure, loss)
            yield ShownImage(caption, sample_uri(pair.truth), sample_uri(pair.found))


def _records(report: Report, measured: Measured) -> Iterator[ShownRecord]:
    """Yield the record of a table that is recovered best, of the strongest attack of each kind."""
    for cell, exposure in _strongest(report, measured, "tabular"):
        loss = next((loss for loss in exposure.losses if loss.found), None)
        if loss is None:
            continue
        pair = measured.pair(cell, loss.client, loss.sample)
        guess = measured.guess(cell, loss.client, loss.sample)
        rows = rows_of(measured.dataset(cell), pair.truth, pair.found, guess)
        yield ShownRecord(_caption(exposure, loss), rows[:SHOWN_COLUMNS], len(rows))


def _strongest(
    report: Report, measured: Measured, modality: str
) -> Iterator[tuple[Cell, Exposure]]:
    """Yield the cell of the strongest attack of each kind on samples of a modality."""
    for grid, exposures in (
        (DEPLOYED, report.exposures),
        (CAPTURED, report.captured),
        (CRAFTED, report.crafted),
    ):
        for cell in measured.cells(grid) if exposures else []:
            if str(cell) == exposures[0].cell and cell.dataset.modality == modality:
                yield cell, exposures[0]


def rows_of(dataset: Dataset, *samples: np.ndarray) -> list[tuple[str, ...]]:
    """Return the columns of a table with their texts for samples; a one-hot group is one column.

    Args:
        dataset: the table.
        *samples: Shape (F).

    Returns:
        For each column its name, and each sample's number or most likely category.
    """
    names, groups = dataset.feature_names, dataset.feature_groups
    assert names is not None and groups is not None
    rows = []
    for group in dict.fromkeys(groups):
        features = np.flatnonzero(groups == group)
        values = [sample[features] for sample in samples]
        if len(features) == 1:
            rows.append((str(names[features[0]]), *(f"{value[0]:.3f}" for value in values)))
        else:
            split = [str(names[feature]).partition("=") for feature in features]
            rows.append((split[0][0], *(split[int(value.argmax())][2] for value in values)))
    return rows


def _caption(exposure: Exposure, loss: Loss) -> str:
    return (
        f"Client {loss.client}, {bare_name(exposure.attack)}: {exposure.metric} "
        f"{three_digits(loss.value)} "
        f"(the client's best guess without the update: {three_digits(loss.blind)})"
    )


def _unchecked_images(measured: Measured) -> Iterator[ShownImage]:
    """Yield the first samples that attacks recovered of captures without true samples."""
    for cell in measured.unscored:
        if cell.dataset.modality == "image":
            samples = measured.reconstruction(cell).inputs[:, 0]
            for client, sample in enumerate(samples[:SHOWN_CLIENTS]):
                caption = f"Client {client} of {cell.captured.capture}, {cell.attack.name}"
                yield ShownImage(caption, "", sample_uri(sample))


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
        change=change_in_words,
        ends=ends_in_percent,
        guarantee=guarantee,
        mean=format_mean,
        name=bare_name,
        number=three_digits,
        percent=format_percent,
        readable=readable,
        seconds=duration,
        spec=format_spec,
        verdict=verdict_in_words,
    )
    return environment.get_template("report.html.j2")
