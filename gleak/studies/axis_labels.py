"""Values of a grid's axes and their labels: ours, the paper's, and those printed in figures.

Values are spec objects. Texts are read where a study or a table is, and printed as labels.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from types import MappingProxyType
from typing import ClassVar

from gleak.core.errors import SpecError, nearest
from gleak.core.registry import parse
from gleak.core.spec import Spec, format_value
from gleak.metrics.base import MetricSpec, metrics_of
from gleak.studies.cell import TRUTH, Cell

Texts = Mapping[str, Mapping[str, str]]
"""For each level, a spec string -> another one."""
NOTHING: Texts = MappingProxyType({})
BLIND = "blind"
CONTROLS = (BLIND, TRUTH)


class Truth(Spec):
    """The control that scores the true samples; not a registered attack."""

    kind: ClassVar[str] = "attack"
    name: ClassVar[str] = TRUTH


@cache
def read_spec(level: str, text: str) -> Spec:
    """Read a spec of a level as a study writes it; each text is parsed once.

    Raises:
        SpecError: not a spec of this level.
    """
    spec: Spec = Truth() if (level, text) == ("attack", TRUTH) else parse(level, text)
    return spec


@cache
def read_metric(text: str) -> MetricSpec:
    """Read a metric as a study writes it; each text is parsed once.

    Raises:
        SpecError: not a metric.
    """
    spec: MetricSpec = parse("metric", text)
    return spec


def canonical(level: str, text: str) -> str:
    """Return the canonical string of a spec, or of the truth control.

    Raises:
        SpecError: not a spec of this level.
    """
    return str(read_spec(level, text))


def bare(value: str) -> str:
    """Return the name in a spec string, without its fields."""
    return value.partition("+")[0]


def is_control(cell: Cell) -> bool:
    """Return True if a cell is of the blind control or of the truth."""
    return "attack" in cell.specs and cell.attack.name in CONTROLS


@dataclass(frozen=True)
class AxisLabels:
    """Values of each level of a grid and their other names.

    A study refers to a value by its spec, by the published spec that it substitutes, or, if no
    other value of its level matches as well, by a spec of the same setting, which differs in budget
    and tuned fields alone (``cpl`` for ``cpl+iterations=100``), or by a name without fields. The
    setting of a value that a search chose is that of the base of the search.

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
        axes = {level: tuple(read_spec(level, text) for text in values[level]) for level in values}
        pairs, chosen = _read_pairs(substituted), _read_pairs(bases)
        return cls(axes, pairs, labels or {}, chosen, zipped)

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
        """Return the specs of a level, in the order of the study."""
        return list(self.axes[level])

    def cell(self, row: Mapping[str, str]) -> Cell:
        """Return the cell of a table's row, looked up by the canonical strings of its levels."""
        return Cell({level: specs[row[level]] for level, specs in self.specs.items()})

    def cells(self, rows: Iterable[Mapping[str, str]]) -> list[Cell]:
        """Return the cell of each row, see `cell`."""
        return [self.cell(row) for row in rows]

    def _base(self, level: str, spec: Spec) -> Spec:
        """Return the base of the search that chose a spec; the spec itself if none did."""
        return self.bases.get(level, {}).get(spec, spec)

    @cached_property
    def _settings(self) -> dict[str, dict[Spec, set[Spec]]]:
        """Settings of each value's base and of the published spec that it substitutes."""
        return {
            level: {
                value: {
                    self._base(level, value).setting(),
                    self.substituted.get(level, {}).get(value, value).setting(),
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
        if spec.level != last:
            options = nearest(metric, map(str, metrics_of(last)))
            raise SpecError(
                f"metric {metric!r} is of cells that end with {spec.level}, and those of the grid "
                f"end with {last}; {options}"
            )

    def resolve(self, level: str, wanted: str) -> Spec | None:
        """Return the value of a level that a text of the study refers to, None if there is none.

        Raises:
            SpecError: no such level, or not a spec of it.
        """
        if level not in self.values:
            raise SpecError(f"unknown level {level!r}; {nearest(level, self.values)}")
        spec = self.variants.get(level, {}).get(wanted) or read_spec(level, wanted)
        values, published = self.axis(level), self.substituted.get(level, {})
        if spec in values:
            return spec
        for matching in (
            [value for value in values if published.get(value) == spec],
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
        chosen = {level: self.resolve(level, wanted) for level, wanted in where.items()}
        for level, value in chosen.items():
            if value is None:
                options = nearest(where[level], self.values[level])
                raise SpecError(f"the grid has no {level} {where[level]!r}; {options}")
        return {level: value for level, value in chosen.items() if value is not None}

    def published(self, level: str, value: Spec | None, known: Collection[Spec]) -> Spec | None:
        """Return the published spec of a level that a value is compared with, None if none is."""
        if level not in self.values or value is None:
            return None
        wanted = self.substituted.get(level, {}).get(value, self._base(level, value))
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
        search's base.
        """
        value, *others = (self._labelled(level, spec) for spec in (value, *self.axis(level)))
        if own := self._own_label(value):
            return own
        alike = [other for other in others if other.name == value.name]
        label = self.labels.get(value.name, value.name)
        told_apart = all(self._own_label(other) for other in alike if other != value)
        if value not in alike or (str(value.setting()) in self.labels and told_apart):
            return label
        fields = [f"{key}={text}" for key, text in _differing(value, alike).items()]
        return f"{label} ({', '.join(fields)})" if fields else label

    def _own_label(self, value: Spec) -> str | None:
        """Return the label of a spec with fields, or of one that differs in its budget alone."""
        texts = map(str, (value, value.without_budget(), value.setting()))
        return next(
            (self.labels[text] for text in texts if "+" in text and text in self.labels), None
        )

    def _labelled(self, level: str, value: Spec) -> Spec:
        """Return the base of the search that chose a value, if it is the base of no other."""
        base = self._base(level, value)
        bases = [self._base(level, other) for other in self.axis(level)]
        return base if bases.count(base) == 1 else value

    def heading(self, level: str, value: Spec) -> str:
        """Return the label with that of the substituted value: ``photos (for CIFAR-10)``.

        A value that substitutes one of the same name has its label alone.
        """
        published = self.substituted.get(level, {}).get(value, value)
        label = self.label(level, value)
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


def _read_pairs(pairs: Texts) -> dict[str, dict[Spec, Spec]]:
    return {
        level: {read_spec(level, ours): read_spec(level, other) for ours, other in texts.items()}
        for level, texts in pairs.items()
    }


def _count(cells: Sequence[Cell], levels: Sequence[str]) -> int:
    """Count the distinct combinations of values of some levels."""
    return len({tuple(cell.specs[level] for level in levels) for cell in cells})


def _differing(value: Spec, alike: Sequence[Spec]) -> dict[str, str]:
    """Return the fields of a spec in which specs of one name differ.

    Budget fields only if they differ in nothing else.
    """
    texts = {
        key: [format_value(getattr(spec, key)) for spec in (value, *alike)]
        for key in type(value).model_fields
    }
    differing = [key for key in texts if len({*texts[key]}) > 1]
    kept = [key for key in differing if key not in value.budget_fields] or differing
    return {key: texts[key][0] for key in kept}
