"""Metrics that the figures and claims of a study show: which at a scale, and of which cells."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from gleak.core.errors import SpecError, nearest
from gleak.core.spec import build_spec
from gleak.studies.axis_labels import read_metric
from gleak.studies.figure_spec import FigureSpec, GridFigure

if TYPE_CHECKING:
    from gleak.metrics.base import ScoreSpec
    from gleak.studies.cell import Cell
    from gleak.studies.claims import Expectation
    from gleak.studies.study import Study

Instead = Mapping[str, str]
"""Metric as a study writes it -> the one that is measured in its place at a scale."""


def figure_with(figure: FigureSpec, instead: Instead) -> FigureSpec:
    """Return a figure that shows other metrics in place of some."""
    if not instead:
        return figure
    names = {text: other for text, other in instead.items() if text not in figure.grids}
    fields = {key: _replaced(value, names) for key, value in figure}
    written = {key for key, value in figure if fields[key] != value} | figure.model_fields_set
    spec: Any = build_spec(type(figure), {key: fields[key] for key in written})
    found: FigureSpec = spec
    return found


def _replaced(value: Any, names: Instead) -> Any:
    """Replace the texts that are metrics, also in lists and as keys."""
    if isinstance(value, str):
        return names.get(value, value)
    if isinstance(value, list):
        return [_replaced(item, names) for item in value]
    if isinstance(value, dict):
        return {names.get(key, key): _replaced(item, names) for key, item in value.items()}
    return value


def claim_with(claim: Expectation, instead: Instead) -> Expectation:
    """Return a claim about another metric, if its own is measured by another."""
    return claim.model_copy(update={"metric": instead.get(claim.metric, claim.metric)})


def check_instead(instead: Instead, shown: Iterable[str]) -> None:
    """Check what is measured in place of the metrics of figures and claims.

    Args:
        instead: substitutes at a scale.
        shown: metrics of all figures and claims, as the study writes them.

    Raises:
        SpecError: no such metric, one of other cells, or one that nothing shows.
    """
    known = set(shown)
    for text, other in instead.items():
        if text not in known:
            raise SpecError(f"metrics: no figure or claim shows {text!r}; {nearest(text, known)}")
        levels = [read_metric(metric).level for metric in (text, other)]
        if len(set(levels)) > 1:
            raise SpecError(
                f"metrics: {text!r} is of cells that end with {levels[0]}, {other!r} of cells that "
                f"end with {levels[1]}; name a metric of the same cells"
            )


def shown_metrics(figures: Iterable[FigureSpec], claims: Iterable[Expectation]) -> Iterator[str]:
    """Iterate over the metrics of figures and claims, as the study writes them."""
    for _, metric in _by_grid(figures, claims):
        yield metric


def asked_metrics(study: Study, scale: str) -> dict[Cell, set[ScoreSpec]]:
    """Return the metrics that the figures and claims of a study need of each cell.

    Args:
        study: the study.
        scale: scale of its grids.
    """
    figures = (study.figure(name, scale) for name in study.figures)
    found: dict[Cell, set[ScoreSpec]] = defaultdict(set)
    for name, text in set(_by_grid(figures, study.claims(scale))):
        grid, metric = study.grids[name][scale], read_metric(text)
        for cell in (*grid.repeated, *grid.truths):
            found[cell].add(metric)
    return found


def _by_grid(
    figures: Iterable[FigureSpec], claims: Iterable[Expectation]
) -> Iterator[tuple[str, str]]:
    """Iterate over pairs of a grid and a metric of it that a figure or claim shows."""
    for figure in figures:
        if isinstance(figure, GridFigure):
            yield from ((figure.grid, metric) for metric in figure.used_metrics)
    for claim in claims:
        yield claim.grid, claim.metric
