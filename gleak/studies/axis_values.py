"""Values on the axes of a grid at a scale: specs, their labels and what they substitute.

A study is written by difference (`gleak.studies.study_file`): a base, variants, and changes at
each scale. Here these are applied; what results are spec objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import Any

from gleak.core.errors import SpecError, error_context, nearest
from gleak.core.registry import find, kind_at, parse_at
from gleak.core.settings import Scale
from gleak.core.spec import Spec, build_spec, changed
from gleak.studies.cell import LEVELS, TRUTH
from gleak.studies.search.declaration import SpecSearch
from gleak.studies.study_file import Axes, GridFile, Item, StudyFile, WrittenAxis

ITEM_KEYS = ("name", "base", "search")


@dataclass(frozen=True)
class AxisValue:
    """One value of an axis.

    Args:
        spec: at the scale.
        variant: name of the variant that it is, changed by a scale or not; None: it has no name.
        label: of the variant.
        original: spec at the scale of the paper; of a result of a search, that of its base.
        base: spec that a search began with, if a search chose this one.
        search: that search.
    """

    spec: Spec
    variant: str | None = None
    label: str | None = None
    original: Spec | None = None
    base: Spec | None = None
    search: SpecSearch | None = None

    @property
    def substituted(self) -> Spec:
        """Spec at the scale of the paper that this value stands beside published numbers for."""
        return self.original or self.base or self.spec

    def is_called(self, text: str, spec: Spec) -> bool:
        """Return True if a text is its name, or a spec its own at this or the paper's scale."""
        return text == self.variant or spec in (self.spec, self.base, self.original)


def with_fields(spec: Spec, fields: Mapping[str, Any]) -> Spec:
    """Return a spec with other values in some fields; a mapping changes fields of a nested spec.

    Raises:
        SpecError: an unknown field, a bad value, or fields of a nested spec that is not there.
    """
    values = {key: _as_text(value) for key, value in fields.items()}
    for key, value in fields.items():
        if isinstance(value, Mapping):
            nested = getattr(spec, key, None)
            if not isinstance(nested, Spec):
                raise SpecError(f"{spec}: field {key!r} is {nested}, which has no fields to change")
            values[key] = with_fields(nested, value)
    spec_with_fields: Spec = changed(spec, values)
    return spec_with_fields


def _as_text(value: Any) -> Any:
    """Return what a spec string would hold for YAML's null."""
    return "none" if value is None else value


def is_patch(axis: WrittenAxis | None) -> bool:
    """Return True if an axis of a scale changes values instead of replacing them."""
    return isinstance(axis, dict) and not set(ITEM_KEYS) & set(axis)


@dataclass
class Patch:
    """Changes of fields at a scale; it remembers which of its keys matched a value.

    Args:
        level: of the axis.
        changes: field, or name of a spec or variant -> value, or fields of that alone.
        matched: keys that matched so far.
        valid: keys that would have matched a value so far.
    """

    level: str
    changes: Mapping[str, Any]
    matched: set[str] = field(default_factory=set)
    valid: set[str] = field(default_factory=set)

    def apply(self, value: AxisValue) -> AxisValue:
        """Return a value with the changes that match it; those of its name come last."""
        names = {value.spec.name, value.variant or value.spec.name}
        own = set(type(value.spec).model_fields)
        fields = {key: new for key, new in self.changes.items() if _fits(value.spec, key, new)}
        named = [key for key in self.changes if key in names]
        for key in named:
            with error_context(repr(key)):
                if not isinstance(self.changes[key], Mapping):
                    raise SpecError(f"{self.changes[key]!r} is no mapping of fields")
            fields |= {
                name: new
                for name, new in self.changes[key].items()
                if _fits(value.spec, name, new) or name not in own
            }
        self.matched |= {*fields, *named} & set(self.changes)
        self.valid |= own | names
        if not fields:
            return value
        base = value.base and with_fields(value.base, fields)
        spec = with_fields(value.spec, fields)
        return replace(value, spec=spec, base=base, original=value.substituted)

    def check(self) -> None:
        """Raise a `SpecError` if a key matched no value."""
        for key in self.changes:
            if key not in self.matched:
                raise SpecError(f"{key!r} matches no {self.level}; {nearest(key, self.valid)}")


def _fits(spec: Spec, key: str, value: Any) -> bool:
    """Return True if a spec has a field, and a nested spec in it if the value is fields of that."""
    nested = isinstance(getattr(spec, key, None), Spec)
    return key in type(spec).model_fields and (nested or not isinstance(value, Mapping))


class Variants:
    """The named specs of a study: level -> name -> spec string or fields, as written.

    Raises:
        SpecError: an unknown level, a circular base, or two variants of one label.
    """

    def __init__(self, written: Mapping[str, Mapping[str, Item]]) -> None:
        self._written = written
        for level, items in written.items():
            with error_context("variants"):
                if level not in LEVELS:
                    raise SpecError(f"unknown level {level!r}; {nearest(level, LEVELS)}")
                first: dict[str, str] = {}
                for name, item in items.items():
                    label = _label(name, item)
                    if first.setdefault(label, name) != name:
                        raise SpecError(
                            f"{level}: {first[label]!r} and {name!r} have the same label "
                            f"{label!r}; give one of them another"
                        )

    def names(self, level: str) -> list[str]:
        return list(self._written.get(level, {}))

    def find(self, level: str, name: str, users: tuple[str, ...] = ()) -> AxisValue:
        """Return a variant at the scale of the paper; ``users`` are those whose base it is.

        Raises:
            SpecError: it cannot be used as written, or is a base of its own base.
        """
        if name in users:
            circle = " -> ".join([*users, name])
            raise SpecError(f"variants: {level}: circular base: {circle}; name another base")
        item = self._written[level][name]
        with error_context(f"variant {name!r}"):
            if isinstance(item, str):
                spec = parse_at(level, item)
            else:
                fields = {key: value for key, value in item.items() if key != "label"}
                (spec,) = _specs(level, fields, lambda base: self.spec(level, base, (*users, name)))
        return AxisValue(spec, variant=name, label=_label(name, item))

    def specs(self, level: str) -> dict[str, Spec]:
        """Return the spec of every variant of a level at the scale of the paper."""
        return {name: self.find(level, name).spec for name in self.names(level)}

    def spec(self, level: str, text: str, users: tuple[str, ...] = ()) -> Spec:
        """Return the spec of a variant's name or of a spec string."""
        names = self.names(level)
        if text in names:
            return self.find(level, text, users).spec
        try:
            spec: Spec = parse_at(level, text)
        except SpecError as error:
            raise SpecError(
                f"{error}; or a variant: {', '.join(names)}" if names else str(error)
            ) from None
        return spec


def _label(name: str, item: Item) -> str:
    return name if isinstance(item, str) else str(item.get("label", name))


def _specs(level: str, fields: Mapping[str, Any], find_base: Any) -> Iterator[Spec]:
    """Make the specs of a mapping with a name or a base; one for each element of its lists."""
    given = {key: value for key, value in fields.items() if key not in ITEM_KEYS}
    lists = {key: value for key, value in given.items() if isinstance(value, list)}
    for chosen in product(*lists.values()):
        values = {**given, **dict(zip(lists, chosen, strict=True))}
        if "name" in fields:
            cls = find(kind_at(level, str(fields["name"])), str(fields["name"]))
            yield build_spec(cls, {key: _as_text(value) for key, value in values.items()})
        else:
            yield with_fields(find_base(fields["base"]), values)


class AxisReader:
    """Reads the axes of a study's grids at one scale, with the study's searches at the scale."""

    def __init__(self, study: StudyFile, scale: Scale, searches: Mapping[str, SpecSearch]) -> None:
        self.study, self.scale, self.searches = study, scale, searches
        self.variants = Variants(study.variants)
        changes = study.changes(scale)
        self.patches = {
            level: Patch(level, axis)
            for level in LEVELS
            if isinstance(axis := getattr(changes, level), dict) and is_patch(axis)
        }
        self.replaced = {
            level: axis
            for level in LEVELS
            if (axis := getattr(changes, level)) is not None and level not in self.patches
        }

    @cached_property
    def at_paper(self) -> AxisReader:
        return self if self.scale == "paper" else AxisReader(self.study, "paper", self.searches)

    def read(self, level: str, grid: GridFile) -> list[AxisValue]:
        """Return the values of one axis of a grid.

        Raises:
            SpecError: what cannot be used as written.
        """
        own = getattr(getattr(grid, self.scale, None) or Axes(), level)
        if own is not None and not is_patch(own):
            return self._items(level, own)
        written = getattr(grid, level)
        if level in self.replaced:
            values = self._items(level, self.replaced[level])
        elif written is not None:
            values = self.at_paper._items(level, written)
        else:
            values = [self.at_paper.base(level)]
        changes = dict(own or {})
        if (only := changes.pop("only", None)) is not None:
            values = [self._one_of(level, str(text), values) for text in only]
        if level in self.patches:
            values = [self.patches[level].apply(value) for value in values]
        patch = Patch(level, changes)
        values = [patch.apply(value) for value in values]
        patch.check()
        return values

    def _one_of(self, level: str, text: str, values: Sequence[AxisValue]) -> AxisValue:
        """Return the value of an axis that a variant's name or a spec string means."""
        matching = [value for value in values if value.variant == text]
        if not matching:
            spec = self.variants.spec(level, text)
            matching = [value for value in values if spec in (value.spec, value.base)]
        if not matching:
            known = {value.variant or str(value.spec) for value in values}
            raise SpecError(f"only: {text!r} is not on the axis; {nearest(text, known)}")
        return matching[0]

    def check_patches(self) -> None:
        """Raise a `SpecError` if a patch of the study matches no value of any grid read."""
        for level, patch in self.patches.items():
            with error_context(f"scales, {self.scale}, {level}"):
                patch.check()

    def base(self, level: str) -> AxisValue:
        """Return the study's base spec of a level, as it is at the scale.

        Raises:
            SpecError: the study has none, or the scale gives it several values.
        """
        if level not in self.study.base:
            raise SpecError(
                "has no values: give a spec or a list of them, or the study a base for this level"
            )
        value = self.at_paper._named(level, self.study.base[level])
        if level in self.replaced:
            values = self._items(level, self.replaced[level])
            if len(values) != 1:
                raise SpecError(f"the study's base has {len(values)} values, and needs one")
            value = values[0]
        return self.patches[level].apply(value) if level in self.patches else value

    def _items(self, level: str, axis: WrittenAxis) -> list[AxisValue]:
        items = axis if isinstance(axis, list) else [axis]
        if not items:
            raise SpecError("has no values; give a spec or a list of them")
        return [value for item in items for value in self._item(level, item)]

    def _item(self, level: str, item: Item) -> Iterable[AxisValue]:
        if isinstance(item, str):
            return [self._named(level, item)]
        if "search" in item:
            return [self._searched(level, item)]
        if "name" in item or "base" in item:
            specs = _specs(level, item, lambda base: self.variants.spec(level, base))
            return map(AxisValue, specs)
        if level not in self.study.base:
            raise SpecError(
                f"{dict(item)} changes fields of the study's base, which has no {level}; add one "
                f"there, or one of the keys {', '.join(ITEM_KEYS)} here"
            )
        base = self.base(level).spec
        return map(AxisValue, _specs(level, {"base": "", **item}, lambda _: base))

    def _named(self, level: str, text: str) -> AxisValue:
        if text in self.variants.names(level):
            return self.variants.find(level, text)
        if (level, text) == ("attack", TRUTH):
            raise SpecError(f"{TRUTH!r} is a control, not an attack; put it under controls")
        return AxisValue(self.variants.spec(level, text))

    def _searched(self, level: str, item: Mapping[str, Any]) -> AxisValue:
        """Return what a search chose, with the fields that are changed after it."""
        if level != "attack":
            raise SpecError("a search chooses attacks; write a spec")
        name, fields = str(item["search"]), {k: v for k, v in item.items() if k != "search"}
        with error_context(f"search {name!r}"):
            if name not in self.searches:
                raise SpecError(f"the study has none of that name; {nearest(name, self.searches)}")
            search = self.searches[name]
            chosen = with_fields(search.chosen or search.base, fields)
            base = with_fields(search.written or search.base, fields)
            return AxisValue(chosen, base=base, search=search)
