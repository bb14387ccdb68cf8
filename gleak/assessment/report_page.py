"""``report.html``: the report as one page that needs no other file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from gleak.assessment.assembling import worst_cell
from gleak.assessment.drawing import sample_uri, variation_uris
from gleak.assessment.findings import Exposure, Mean, Report
from gleak.assessment.generated_study import CAPTURED, CRAFTED, DEPLOYED
from gleak.assessment.measured import Measured
from gleak.core.numbers import DASH

SHOWN_CLIENTS = 3
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


def render(report: Report, measured: Measured) -> str:
    """Return the HTML of a report.

    Args:
        report: all numbers of the page.
        measured: for the pictures of samples.
    """
    lines = {each.field: variation_uris(each) for each in report.variations}
    pictures = [*shown_samples(report, measured), *unchecked_samples(measured)]
    shown = pictures if report.deployment["pictures"] else []
    return page_of(report, shown, lines)


def page_of(report: Report, shown: Sequence[Shown], lines: Mapping[str, Sequence[str]]) -> str:
    """Return the HTML of a report with given pictures.

    Args:
        report: all numbers of the page.
        shown: samples and their reconstructions.
        lines: field of the client -> data URIs of its pictures.
    """
    return _template().render(report=report, shown=shown, lines=lines)


def shown_samples(report: Report, measured: Measured) -> Iterator[Shown]:
    """Yield the samples that are recovered best, of the strongest attack of each kind.

    Samples of tables are not shown.
    """
    for grid, found in (
        (DEPLOYED, report.exposures),
        (CAPTURED, report.captured),
        (CRAFTED, report.crafted),
    ):
        cell = worst_cell(measured, grid, found)
        if cell is None or cell.dataset.modality != "image":
            continue
        for loss in [loss for loss in found[0].losses if loss.found][:SHOWN_CLIENTS]:
            pair = measured.pair(cell, loss.client, loss.sample)
            yield Shown(
                f"Client {loss.client}, {found[0].attack}: {found[0].metric} "
                f"{format_number(loss.value)} (guess without the update: "
                f"{format_number(loss.blind)})",
                sample_uri(pair.truth),
                sample_uri(pair.found),
            )


def unchecked_samples(measured: Measured) -> Iterator[Shown]:
    """Yield the first samples that attacks recovered of captures without true samples."""
    for cell in measured.unscored:
        if cell.dataset.modality == "image":
            found = measured.reconstruction(cell).inputs[:, 0]
            for client, sample in enumerate(found[:SHOWN_CLIENTS]):
                caption = f"Client {client} of {cell.client.capture}, {cell.attack}"
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


def format_threshold(exposure: Exposure) -> str:
    """Format the threshold of an exposure."""
    return f"{exposure.metric} {'≥' if exposure.better == 'higher' else '≤'} {exposure.threshold:g}"


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
        mean=format_mean, percent=format_percent, threshold=format_threshold, number=format_number
    )
    return environment.get_template(TEMPLATE)
