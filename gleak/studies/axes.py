"""Axes of figures: a level (``dataset``), a field of its specs (``defense.std``) or their name.

``defense.name`` is the name of the defence without its fields. A spec that lacks the field of an
axis (``none`` has no ``std``) is at a value that the figure chooses, 0 by default.
"""

from __future__ import annotations

from dataclasses import dataclass

from gleak.core.errors import SpecError, nearest
from gleak.core.numbers import format_number
from gleak.core.spec import Spec, format_value
from gleak.studies.axis_labels import AxisLabels, read_spec
from gleak.studies.cell import Cell

NAME = "name"
Place = Spec | float | str
"""Value of a cell on an axis: a spec, a number, or the text of any other field."""


@dataclass(frozen=True)
class Axis:
    """An axis of a figure.

    Args:
        level: whose specs are its values.
        field: of the specs, `NAME`, or "" for the specs themselves.
    """

    level: str
    field: str = ""

    @classmethod
    def read(cls, text: str) -> Axis:
        """Read an axis as a study writes it."""
        level, _, field = text.partition(".")
        return cls(level, field)

    def __str__(self) -> str:
        return f"{self.level}.{self.field}" if self.field else self.level

    def spec(self, cell: Cell) -> Spec:
        """Return the spec of a cell that the axis reads."""
        spec: Spec = cell.specs[self.level]
        return spec

    def has_field(self, spec: Spec) -> bool:
        """Return True if a spec has the field of the axis; every spec has itself and a name."""
        return self.field in ("", NAME) or self.field in type(spec).model_fields

    def place(self, spec: Spec, missing: float = 0.0) -> Place:
        """Return the value of a spec on the axis.

        Args:
            spec: of the axis's level.
            missing: for specs that lack the field, or have none as its value.
        """
        if not self.field:
            return spec
        if self.field == NAME:
            return spec.name
        value = getattr(spec, self.field) if self.has_field(spec) else None
        if value is None:
            return missing
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value)
        return value if isinstance(value, Spec) else format_value(value)

    def is_number(self, spec: Spec) -> bool:
        """Return True if the value of a spec on the axis is a number."""
        return isinstance(self.place(spec), float)

    def label(self, names: AxisLabels, spec: Spec) -> str:
        """Return the label of a spec's value on the axis."""
        if not self.field:
            return names.heading(self.level, spec)
        value = self.place(spec)
        if isinstance(value, float):
            return format_number(value)
        return names.labels.get(str(value), str(value))

    def label_category(self, names: AxisLabels, spec: Spec) -> str:
        """Return the label on an axis of categories: that of the spec if it lacks the field."""
        axis = self if self.has_field(spec) else Axis(self.level)
        return axis.label(names, spec)

    def label_alone(self, names: AxisLabels, spec: Spec) -> str:
        """Return the label with the name of the axis if it is a number: ``batch size 4``."""
        shown = self.label(names, spec)
        return f"{self.title(names)} {shown}" if self.is_number(spec) else shown

    def title(self, names: AxisLabels) -> str:
        """Return the label of the axis itself, or the name of its field."""
        text = str(self)
        return names.labels.get(text, text.rpartition(".")[2].replace("_", " "))


def check_axis(text: str, names: AxisLabels) -> None:
    """Check that the values of a grid have an axis.

    Raises:
        SpecError: no such level, or a field that none of its specs has.
    """
    axis = Axis.read(text)
    if axis.level not in names.values:
        raise SpecError(f"unknown axis {text!r}; {nearest(axis.level, names.values)}")
    specs = names.axis(axis.level)
    fields = {NAME, *(key for spec in specs for key in type(spec).model_fields)}
    if "." in text and axis.field not in fields:
        raise SpecError(
            f"axis {text!r}: no {axis.level} of the grid has {axis.field!r}; "
            f"{nearest(axis.field, fields)}"
        )


def field_values(level: str, value: str) -> set[str]:
    """Return the texts that the fields of a level's value have on axes."""
    return {format_value(found) for _, found in read_spec(level, value)}
