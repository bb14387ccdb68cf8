"""Values of a grid's axes, which are specs, and what they are called: by studies and in figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from types import MappingProxyType
from typing import ClassVar

from gleak.core.errors import SpecError, nearest
from gleak.core.numbers import format_number
from gleak.core.registry import parse, parse_at
from gleak.core.spec import Spec, format_value
from gleak.metrics.base import MetricSpec, metrics_of
from gleak.studies.cell import TRUTH, Cell

Texts = Mapping[str, Mapping[str, str]]
"""For each level, a spec string -> another one."""
NOTHING: Texts = MappingProxyType({})
BLIND = "blind"
CONTROLS = (BLIND, TRUTH)
NAME = "name"
Place = Spec | float | str
"""Value of a cell on an axis: a spec, a number, or the text of any other field."""


class TruthControl(Spec):
    """The control that scores the true samples; not a registered attack."""

    kind: ClassVar[str] = "attack"
    name: ClassVar[str] = TRUTH


@cache
def read_spec(level: str, text: str) -> Spec:
    """Read a spec of a level, or the truth control; each text is parsed once."""
    spec: Spec = TruthControl() if (level, text) == ("attack", TRUTH) else parse_at(level, text)
    return spec


@cache
def read_metric(text: str) -> MetricSpec:
    spec: MetricSpec = parse("metric", text)
    return spec


def bare(value: str) -> str:
    """Return the name in a spec string, without its fields."""
    return value.partition("+")[0]


def is_control(cell: Cell) -> bool:
    return "attack" in cell.specs and cell.attack.name in CONTROLS


@dataclass(frozen=True)
class AxisLabels:
    """Values of each level of a grid and their other names.

    A study refers to a value by its spec, by the published spec that it substitutes, or, if no
    other value of its level matches as well, by a spec of the same setting, which differs in budget
    and tuned fields alone (``cpl`` for ``cpl+iterations=100``; of a value that a search chose, the
    setting of the search's base), or by a name without fields.

    Args:
        axes: specs of each level of the grid, in the order of the study.
        substituted: for each level, our spec -> the published one that it substitutes.
        labels: a spec string, name, metric or axis -> label in figures.
        bases: for each level, a spec that a search chose -> base of the search.
        zipped: groups of levels that advance together.
        variants: for each level, name of a variant -> its spec on the axis, or the variant's own.
    """

    axes: Mapping[str, tuple[Spec, ...]]
    substituted: Mapping[str, Mapping[Spec, Spec]] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    bases: Mapping[str, Mapping[Spec, Spec]] = field(default_factory=dict)
    zipped: Sequence[Sequence[str]] = ()
    variants: Mapping[str, Mapping[str, Spec]] = field(default_factory=dict)

    @classmethod
    def read(
        cls,
        values: Mapping[str, Iterable[str]],
        substituted: Texts = NOTHING,
        labels: Mapping[str, str] | None = None,
        bases: Texts = NOTHING,
        zipped: Sequence[Sequence[str]] = (),
    ) -> AxisLabels:
        """Read spec strings instead of specs."""

        def read_pairs(pairs: Texts) -> dict[str, dict[Spec, Spec]]:
            return {
                level: {read_spec(level, ours): read_spec(level, other) for ours, other in texts}
                for level, texts in ((level, pairs[level].items()) for level in pairs)
            }

        axes = {level: tuple(read_spec(level, text) for text in values[level]) for level in values}
        return cls(axes, read_pairs(substituted), labels or {}, read_pairs(bases), zipped)

    @cached_property
    def values(self) -> dict[str, tuple[str, ...]]:
        """Canonical strings of the specs of each level."""
        return {level: tuple(map(str, specs)) for level, specs in self.axes.items()}

    @cached_property
    def specs(self) -> dict[str, dict[str, Spec]]:
        """Specs of each level by their canonical strings, in the order of the study."""
        return {
            level: dict(zip(self.values[level], specs, strict=True))
            for level, specs in self.axes.items()
        }

    def axis(self, level: str) -> list[Spec]:
        return list(self.axes[level])

    def cell(self, row: Mapping[str, str]) -> Cell:
        """Return the cell of a table's row, looked up by the canonical strings of its levels."""
        return Cell({level: specs[row[level]] for level, specs in self.specs.items()})

    def cells(self, rows: Iterable[Mapping[str, str]]) -> list[Cell]:
        return [self.cell(row) for row in rows]

    def _base(self, level: str, spec: Spec) -> Spec:
        """Return the base of the search that chose a spec; the spec itself if none did."""
        return self.bases.get(level, {}).get(spec, spec)

    def _published(self, level: str, spec: Spec, default: Spec) -> Spec:
        return self.substituted.get(level, {}).get(spec, default)

    @cached_property
    def _own_bases(self) -> dict[str, dict[Spec, Spec]]:
        """Base of each value that a search chose, if it is the base of no other value."""
        own = {}
        for level, values in self.axes.items():
            uses = Counter(self._base(level, value) for value in values)
            chosen = self.bases.get(level, {}).items()
            own[level] = {value: base for value, base in chosen if uses[base] == 1}
        return own

    @cached_property
    def _settings(self) -> dict[str, dict[Spec, set[Spec]]]:
        """Settings of each value's base and of the published spec that it substitutes."""
        return {
            level: {
                value: {
                    self._base(level, value).setting(),
                    self._published(level, value, value).setting(),
                }
                for value in specs
            }
            for level, specs in self.axes.items()
        }

    def together(self, level: str) -> frozenset[str]:
        """Return the levels that advance with a level, including itself."""
        return frozenset({level}).union(*(group for group in self.zipped if level in group))

    def varying(self, cells: Sequence[Cell]) -> list[str]:
        """Return the levels that distinguish cells.

        Of levels that advance together, those without which the others of their group distinguish
        the same cells are dropped, from the last of the group on.
        """
        kept = [level for level in self.values if _count(cells, [level]) > 1]
        for group in self.zipped:
            for level in reversed(group):
                inside = [other for other in group if other in kept]
                others = [other for other in inside if other != level]
                if others != inside and _count(cells, others) == _count(cells, inside):
                    kept.remove(level)
        return kept

    def check_metric(self, metric: str) -> None:
        """Check that the cells of the grid have a metric.

        Raises:
            SpecError: no such metric, or one of cells that end with another level.
        """
        spec, last = read_metric(metric), list(self.values)[-1]
        kinds = dict.fromkeys(one.kind for one in self.axes.get(last, ())) or {last: None}
        if spec.level not in kinds:
            options = nearest(metric, [str(own) for kind in kinds for own in metrics_of(kind)])
            raise SpecError(
                f"metric {metric!r} is of cells that end with {spec.level}, and those of the grid "
                f"end with {' and '.join(kinds)}; {options}"
            )

    def resolve(self, level: str, wanted: str) -> Spec | None:
        """Return the value of a level that a text of the study refers to, None if there is none.

        Raises:
            SpecError: no such level, or not a spec of it.
        """
        if level not in self.values:
            raise SpecError(f"unknown level {level!r}; {nearest(level, self.values)}")
        spec = self.variants.get(level, {}).get(wanted) or read_spec(level, wanted)
        values = self.axes[level]
        if spec in values:
            return spec
        for matching in (
            [value for value in values if self._published(level, value, value) == spec],
            [value for value in values if spec.setting() in self._settings[level][value]],
            [value for value in values if value.name == wanted],
        ):
            if len(matching) == 1:
                return matching[0]
        return None

    def select(self, where: Mapping[str, str]) -> dict[str, Spec]:
        """Return the values that texts of the study refer to, by level.

        Raises:
            SpecError: the grid has no such value.
        """
        chosen = {}
        for level, wanted in where.items():
            value = self.resolve(level, wanted)
            if value is None:
                options = nearest(wanted, self.values[level])
                raise SpecError(f"the grid has no {level} {wanted!r}; {options}")
            chosen[level] = value
        return chosen

    def published(self, level: str, value: Spec | None, known: Collection[Spec]) -> Spec | None:
        """Return the published spec of a level that a value is compared with, None if none is."""
        if level not in self.values or value is None:
            return None
        wanted = self._published(level, value, self._base(level, value))
        if wanted in known:
            return wanted
        setting = wanted.setting()
        alike = [spec for spec in known if spec.setting() == setting]
        rivals = [v for v in self.axis(level) if self._base(level, v).setting() == setting]
        return alike[0] if len(alike) == 1 and len(rivals) <= 1 else None

    def label(self, level: str, value: Spec) -> str:
        """Return the label of a value; if others share its name, with the differing fields.

        A label of a name alone applies to all values of that name, one of a spec with fields to
        all that differ from it in budget fields. A value that a search chose has the label of the
        search's base, unless that is the base of others too.
        """
        own_bases = self._own_bases[level]
        value, *others = (own_bases.get(spec, spec) for spec in (value, *self.axes[level]))
        if own := self._own_label(value):
            return own
        alike = [other for other in others if other.name == value.name]
        label = self.labels.get(value.name, value.name)
        told_apart = all(self._own_label(other) for other in alike if other != value)
        if value not in alike or (str(value.setting()) in self.labels and told_apart):
            return label
        texts = {
            key: [format_value(getattr(spec, key)) for spec in (value, *alike)]
            for key in type(value).model_fields
        }
        differing = [key for key in texts if len({*texts[key]}) > 1]
        shown = [key for key in differing if key not in value.budget_fields] or differing
        fields = ", ".join(f"{key}={texts[key][0]}" for key in shown)
        return f"{label} ({fields})" if fields else label

    def _own_label(self, value: Spec) -> str | None:
        """Return the label of a spec with fields, or of one that differs in its budget alone."""
        texts = map(str, (value, value.without_budget(), value.setting()))
        return next(
            (self.labels[text] for text in texts if "+" in text and text in self.labels), None
        )

    def heading(self, level: str, value: Spec) -> str:
        """Return the label, with that of what it replaces of another name: ``photos (for LFW)``."""
        published, label = self._published(level, value, value), self.label(level, value)
        same = published.name == value.name
        return label if same else f"{label} (for {self.label(level, published)})"

    def metric(self, metric: str) -> str:
        """Return the label of a metric, with its unit, and its fields that are no defaults."""
        spec = read_metric(metric)
        plain = self.labels.get(spec.name, spec.name.replace("_", " "))
        _, *fields = str(spec).split("+")
        with_fields = f"{plain} ({', '.join(fields)})" if fields else plain
        label = self.labels.get(metric, with_fields)
        return label if spec.unit in ("1", spec.name) else f"{label} ({spec.unit})"


def _count(cells: Sequence[Cell], levels: Sequence[str]) -> int:
    """Count the distinct combinations of values of some levels."""
    return len({tuple(cell.specs[level] for level in levels) for cell in cells})


@dataclass(frozen=True)
class Axis:
    """An axis of a figure: a level (``dataset``), a field of its specs (``defense.std``) or `NAME`.

    ``defense.name`` is the name of the defence without its fields. A spec that lacks the field
    (``none`` has no ``std``) is at a value that the figure chooses, 0 by default.

    Args:
        level: whose specs are its values.
        field: of the specs, `NAME`, or "" for the specs themselves.
    """

    level: str
    field: str = ""

    @classmethod
    def read(cls, text: str) -> Axis:
        level, _, field = text.partition(".")
        return cls(level, field)

    def __str__(self) -> str:
        return f"{self.level}.{self.field}" if self.field else self.level

    def spec(self, cell: Cell) -> Spec:
        return cell.specs[self.level]

    def has_field(self, spec: Spec) -> bool:
        """Return True if a spec has the field of the axis; every spec has itself and a name."""
        return self.field in ("", NAME) or self.field in type(spec).model_fields

    def place(self, spec: Spec, missing: float = 0.0) -> Place:
        """Return the value of a spec on the axis; ``missing`` if it lacks the field or has none."""
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

    def label(self, names: AxisLabels, spec: Spec) -> str:
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
        shown, is_number = self.label(names, spec), isinstance(self.place(spec), float)
        return f"{self.title(names)} {shown}" if is_number else shown

    def title(self, names: AxisLabels) -> str:
        """Return the label of the axis itself, or the name of its field."""
        text = str(self)
        return names.labels.get(text, text.rpartition(".")[2].replace("_", " "))


def check_axis(text: str, names: AxisLabels) -> None:
    """Raise a `SpecError` if a grid has no such level, or none of its specs the field."""
    axis = Axis.read(text)
    if axis.level not in names.values:
        raise SpecError(f"unknown axis {text!r}; {nearest(axis.level, names.values)}")
    fields = {NAME, *(key for spec in names.axes[axis.level] for key in type(spec).model_fields)}
    if "." in text and axis.field not in fields:
        raise SpecError(
            f"axis {text!r}: no {axis.level} of the grid has {axis.field!r}; "
            f"{nearest(axis.field, fields)}"
        )
