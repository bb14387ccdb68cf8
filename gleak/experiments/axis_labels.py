"""What the values of a grid's axes are called: by us, by the paper, and on a figure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from gleak.core.errors import SpecError, nearest
from gleak.core.registry import find, parse
from gleak.core.spec import Spec, format_value
from gleak.metrics.base import metrics_of

BLIND = "blind"
TRUTH = "truth"


def canonical(level: str, text: str) -> str:
    """The canonical string of a spec; the truth control, which is no spec, stays as it is.

    Raises:
        SpecError: not a spec of this level.
    """
    return text if (level, text) == ("attack", TRUTH) else str(parse(level, text))


def setting(level: str, text: str) -> str:
    """The canonical string of what a spec is a setting of, see `gleak.core.spec.Spec.setting`."""
    return text if (level, text) == ("attack", TRUTH) else str(parse(level, text).setting())


def without_effort(level: str, text: str) -> str:
    """Return the canonical string of a spec whose budget fields are at their defaults."""
    if (level, text) == ("attack", TRUTH):
        return text
    spec = parse(level, text)
    return str(Spec.setting(spec))


def bare(value: str) -> str:
    """The name of a spec string, without its fields."""
    return value.partition("+")[0]


@dataclass(frozen=True)
class AxisLabels:
    """The values of each level of a grid and their other names.

    A value may be written in five ways: as the spec it is, as the published one it stands in
    for, as the one that the search began with that chose it, or, if no other value of its level
    would be meant as well, as a spec that differs in budget fields alone (``cpl`` for
    ``cpl+iterations=100``) or as a name without fields.

    Args:
        values: for each level of the grid its canonical specs, in the order of the study.
        stands_for: for each level, our value -> the published one it stands in for.
        labels: a value, name, metric or axis -> what figures print.
        tuned_from: for each level, a value that a search chose -> what the search began with.
        zipped: groups of levels that advance together.
        variants: for each level, name of a variant -> its value, or its spec if it is on no axis.
    """

    values: Mapping[str, tuple[str, ...]]
    stands_for: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    tuned_from: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    zipped: Sequence[Sequence[str]] = ()
    variants: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def before_search(self, level: str, value: str) -> str:
        """What the search began with that chose a value; the value itself if none did."""
        return self.tuned_from.get(level, {}).get(value, value)

    def together(self, level: str) -> frozenset[str]:
        """The levels that advance with one, itself among them."""
        return frozenset({level}).union(*(group for group in self.zipped if level in group))

    def varying(self, rows: Sequence[Mapping[str, str]]) -> list[str]:
        """The levels that tell cells apart.

        Of levels that advance together those are left out, from the last of their group on, without
        which the others of the group tell the same apart.
        """
        kept = [level for level in self.values if _count(rows, [level]) > 1]
        for group in self.zipped:
            for level in reversed(group):
                inside = [other for other in group if other in kept]
                others = [other for other in inside if other != level]
                if others != inside and _count(rows, others) == _count(rows, inside):
                    kept.remove(level)
        return kept

    def check_metric(self, metric: str) -> None:
        """Refuse a metric that the cells of the grid do not have.

        Raises:
            SpecError: no such metric, or one of cells that end with another level.
        """
        spec, last = parse("metric", metric), list(self.values)[-1]
        if spec.level != last:
            options = nearest(metric, map(str, metrics_of(last)))
            raise SpecError(
                f"metric {metric!r} is of cells that end with {spec.level}, and those of the grid "
                f"end with {last}; {options}"
            )

    def resolve(self, level: str, wanted: str) -> str | None:
        """The value of this level that is meant, None if there is none.

        Raises:
            SpecError: no such level, or not a spec of it.
        """
        if level not in self.values:
            raise SpecError(f"unknown level {level!r}; {nearest(level, self.values)}")
        spec = canonical(level, self.variants.get(level, {}).get(wanted, wanted))
        values, stand_ins = self.values[level], self.stands_for.get(level, {})
        meant = [value for value in values if value == spec]
        meant += [value for value in values if stand_ins.get(value) == spec]
        began = {value: self.before_search(level, value) for value in values}
        meant += [value for value in values if began[value] == spec]
        settings = {
            value: {setting(level, text) for text in (began[value], stand_ins.get(value, value))}
            for value in values
        }
        same = [value for value in values if setting(level, spec) in settings[value]]
        alike = [value for value in values if bare(value) == wanted]
        only = [found[0] for found in (same, alike) if len(found) == 1]
        return next(iter([*meant, *only]), None)

    def select(self, where: Mapping[str, str]) -> dict[str, str]:
        """The values that are meant, level by level.

        Raises:
            SpecError: the grid has no such value.
        """
        chosen = {level: self.resolve(level, wanted) for level, wanted in where.items()}
        for level, value in chosen.items():
            if value is None:
                options = nearest(where[level], self.values[level])
                raise SpecError(f"the grid has no {level} {where[level]!r}; {options}")
        return {level: value for level, value in chosen.items() if value is not None}

    def published(self, level: str, value: str, known: Collection[str]) -> str | None:
        """Which of the published specs of this level a value is compared with, None if none is."""
        if level not in self.values:
            return None
        began = [self.before_search(level, other) for other in self.values[level]]
        wanted = self.stands_for.get(level, {}).get(value, self.before_search(level, value))
        if wanted in known:
            return wanted
        same = [other for other in known if setting(level, other) == setting(level, wanted)]
        rivals = [other for other in began if setting(level, other) == setting(level, wanted)]
        if len(same) == 1 and len(rivals) <= 1:
            return same[0]
        ours = [other for other in self.values[level] if bare(other) == bare(value)]
        theirs = [other for other in known if bare(other) == bare(wanted)]
        return bare(wanted) if len(ours) == 1 and theirs == [bare(wanted)] else None

    def label(self, level: str, value: str) -> str:
        """What figures print for a value; where others share its name, with what tells them apart.

        A label for the name alone serves all values of that name, one for a spec with fields all
        that differ from it in budget fields. What a search chose is called as what it began with.
        """
        value = self._called(level, value)
        called = [self._called(level, other) for other in self.values[level]]
        alike = [other for other in called if bare(other) == bare(value)]
        if own := self._own_label(level, value):
            return own
        others = [other for other in alike if other != value]
        if setting(level, value) in self.labels and all(
            self._own_label(level, other) for other in others
        ):
            return self.labels[bare(value)]
        shown = self.labels.get(bare(value), bare(value))
        fields = _differing(level, value, alike) if value in alike and len(alike) > 1 else {}
        return f"{shown} ({', '.join(f'{k}={v}' for k, v in fields.items())})" if fields else shown

    def _own_label(self, level: str, value: str) -> str | None:
        """Return the label of a spec, or of one that differs in its budget fields alone."""
        alike = (value, without_effort(level, value), setting(level, value))
        labels = (self.labels.get(spec) for spec in alike if "+" in spec)
        return next(filter(None, labels), None)

    def _called(self, level: str, value: str) -> str:
        """What the search began with that chose a value, if no other value would be called so."""
        began = [self.before_search(level, other) for other in self.values[level]]
        wanted = self.before_search(level, value)
        return wanted if began.count(wanted) == 1 else value

    def heading(self, level: str, value: str) -> str:
        """The label, with what the value stands in for: ``photos (for CIFAR-10)``.

        What stands for a published value of the same name is called by its label alone.
        """
        published = self.stands_for.get(level, {}).get(value, value)
        label = self.label(level, value)
        same = bare(published) == bare(value)
        return label if same else f"{label} (for {self.label(level, published)})"

    def metric(self, metric: str) -> str:
        """What figures print for a metric, with its unit."""
        cls = find("metric", bare(metric))
        unit = getattr(cls, "unit", "1")
        plain = cls.name.replace("_", " ")
        label = self.labels.get(metric, self.labels.get(bare(metric), plain))
        return label if unit in ("1", cls.name) else f"{label} ({unit})"


def _count(rows: Sequence[Mapping[str, str]], levels: Sequence[str]) -> int:
    """How many combinations of values these levels have."""
    return len({tuple(row[level] for level in levels) for row in rows})


def _differing(level: str, value: str, alike: Sequence[str]) -> dict[str, str]:
    """The fields in which specs of one name differ, as one of them has them.

    Budget fields only where specs differ in nothing else.
    """
    specs = [parse(level, other) for other in alike]
    fields = [_fields(spec) for spec in specs]
    differing = [key for key in fields[0] if len({other[key] for other in fields}) > 1]
    kept = [key for key in differing if key not in specs[0].budget_fields] or differing
    return {key: _fields(parse(level, value))[key] for key in kept}


def _fields(spec: Spec) -> dict[str, str]:
    return {key: format_value(value) for key, value in spec}
