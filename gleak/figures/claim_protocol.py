"""Protocol at which a claim is judged: that of its paper, or what was changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from gleak.core.spec import Spec, format_value
from gleak.studies.axis_labels import AxisLabels
from gleak.studies.cell import Cell
from gleak.studies.claims import METRIC

THE_PAPERS = "the paper's"
NUMBERS = {"victims", "repeats", "first"}
"""Fields of a client that say how many victims there are, which a verdict states itself."""


def changes(
    cells: Iterable[Cell], names: AxisLabels, paper: AxisLabels, metric: str, published: str
) -> dict[str, list[str]]:
    """Return what differs between cells and those of the paper's protocol, by level.

    The number of victims does not count, nor does what a search chose.

    Args:
        cells: that are compared.
        names: labels of their grid.
        paper: those of the same grid at the scale `paper`.
        metric: that is judged.
        published: the metric that the claim is about.
    """
    found: dict[str, list[str]] = {}
    for cell in cells:
        for level, spec in cell.specs.items():
            told = _changed(level, spec, names, paper)
            found[level] = list(dict.fromkeys([*found.get(level, []), *told]))
    if metric != published:
        found[METRIC] = [f"{names.metric(metric)} for {paper.metric(published)}"]
    return {level: told for level, told in found.items() if told}


def describe_protocol(changed: Mapping[str, Sequence[str]]) -> str:
    """Return changes in words."""
    return "; ".join(text for texts in changed.values() for text in texts) or THE_PAPERS


def _changed(level: str, spec: Spec, names: AxisLabels, paper: AxisLabels) -> list[str]:
    """Return how a spec of a level differs from the paper's that it stands for."""
    theirs = names.substituted.get(level, {}).get(spec) or _counterpart(spec, paper.axes[level])
    label = names.label(level, spec)
    if theirs is None:
        told = _differing_from_all(spec, paper.axes[level], f"{level} ")
        return told or [f"{label}, which this part of the paper does not have"]
    if theirs.name != spec.name:
        named = paper.label(level, theirs)
        told = [f"{spec if label == named else label} for {named}"]
        return told + _differing(spec, theirs, f"{level} ") if level == "client" else told
    return _differing(names.bases.get(level, {}).get(spec, spec), theirs, f"{level} ")


def _differing(spec: Spec, theirs: Spec, prefix: str) -> list[str]:
    """Return the fields that two specs have and in which they differ."""
    found = []
    for key in type(spec).model_fields:
        if key not in type(theirs).model_fields:
            continue
        ours, other = getattr(spec, key), getattr(theirs, key)
        if ours == other or key in NUMBERS:
            continue
        if isinstance(ours, Spec) and isinstance(other, Spec) and ours.name == other.name:
            found += _differing(ours, other, f"{key} ")
        else:
            found.append(f"{prefix}{key} {format_value(ours)} for {format_value(other)}")
    return found


def _differing_from_all(spec: Spec, theirs: Iterable[Spec], prefix: str) -> list[str]:
    """Return the fields in which a spec differs from all of its name; none if there is none."""
    alike, found = [other for other in theirs if other.name == spec.name], []
    for key in type(spec).model_fields if alike else ():
        ours, others = getattr(spec, key), [getattr(other, key) for other in alike]
        if ours not in others and key not in NUMBERS:
            told = " or ".join(dict.fromkeys(map(format_value, others)))
            found.append(f"{prefix}{key} {format_value(ours)} for {told}")
    return found


def _counterpart(spec: Spec, theirs: Sequence[Spec]) -> Spec | None:
    """Return the paper's spec that is equal, or the only one that differs in its budget alone."""
    if spec in theirs:
        return spec
    alike = [other for other in theirs if other.setting() == spec.setting()]
    return alike[0] if len(alike) == 1 else None
