"""Axes of figures: a level (``dataset``), a field of its specs (``defense.std``) or their name.

``defense.name`` is the name of the defence without its fields. A spec that lacks the field of an
axis (``none`` has no ``std``) stands at the value the figure says, 0 unless it says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping

from gleak.core.errors import SpecError, nearest
from gleak.core.numbers import format_number
from gleak.core.registry import parse
from gleak.core.spec import format_value
from gleak.experiments.axis_labels import TRUTH, AxisLabels, bare

NAME = "name"


def level_of(axis: str) -> str:
    """The level an axis is read from."""
    return axis.partition(".")[0]


def check_axis(axis: str, names: AxisLabels) -> None:
    """Refuse an axis that the values of a grid do not have.

    Raises:
        SpecError: no such level, or a field that none of its specs has.
    """
    level, dot, field = axis.partition(".")
    if level not in names.values:
        raise SpecError(f"unknown axis {axis!r}; {nearest(level, names.values)}")
    specs = [parse(level, value) for value in names.values[level] if value != TRUTH]
    fields = {NAME, *(key for spec in specs for key in type(spec).model_fields)}
    if dot and field not in fields:
        raise SpecError(
            f"axis {axis!r}: no {level} of the grid has {field!r}; {nearest(field, fields)}"
        )


def field_values(level: str, value: str) -> set[str]:
    """The texts that the fields of a level's value have on axes; the truth has none."""
    return set() if value == TRUTH else {format_value(found) for _, found in parse(level, value)}


def has_field(axis: str, value: str) -> bool:
    """Whether a level's value has the field of an axis; every value has itself and a name."""
    level, _, field = axis.partition(".")
    if field in ("", NAME):
        return True
    return value != TRUTH and field in type(parse(level, value)).model_fields


def place(axis: str, value: str, missing: float = 0.0) -> float | str:
    """Where a level's value stands on an axis: a number, or text for all other kinds of fields.

    Args:
        axis: as in a study.
        value: the canonical spec of the axis's level.
        missing: for specs that lack the field, or have none as its value.
    """
    level, _, field = axis.partition(".")
    if not field:
        return value
    if field == NAME:
        return bare(value)
    found = getattr(parse(level, value), field) if has_field(axis, value) else None
    if found is None:
        return missing
    is_number = isinstance(found, (int, float)) and not isinstance(found, bool)
    return float(found) if is_number else format_value(found)


def label_place(axis: str, names: AxisLabels, row: Mapping[str, str]) -> str:
    """What figures print for the place of a cell on an axis.

    Args:
        axis: as in a study.
        names: of the grid.
        row: canonical spec of each level.
    """
    level = level_of(axis)
    if axis == level:
        return names.heading(level, row[level])
    found = place(axis, row[level])
    return names.labels.get(found, found) if isinstance(found, str) else format_number(found)


def label_category(axis: str, names: AxisLabels, row: Mapping[str, str]) -> str:
    """As `label_place`, for an axis of categories: a spec without its field has its own label."""
    level = level_of(axis)
    return label_place(axis if has_field(axis, row[level]) else level, names, row)


def label_alone(axis: str, names: AxisLabels, row: Mapping[str, str]) -> str:
    """As `label_place`, for where the axis is not named beside it: ``batch size 4``."""
    shown = label_place(axis, names, row)
    is_number = axis != level_of(axis) and not isinstance(place(axis, row[level_of(axis)]), str)
    return f"{label_axis(axis, names)} {shown}" if is_number else shown


def label_axis(axis: str, names: AxisLabels) -> str:
    """What figures print for an axis itself: its label, or the field's name."""
    return names.labels.get(axis, axis.rpartition(".")[2].replace("_", " "))
