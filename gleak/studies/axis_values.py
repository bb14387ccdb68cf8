"""Values on the axes of a grid at a scale: specs, their labels and what they substitute.

A study is written by difference (`gleak.studies.study_file`): a base, variants, and changes at
each scale. Here these are applied; what results are spec objects.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import Any

from gleak.core.errors import SpecError, error_context, nearest
from gleak.core.registry import find, parse
from gleak.core.settings import Scale
from gleak.core.spec import Spec, build_spec, changed
from gleak.studies.cell import LEVELS, TRUTH
from gleak.studies.search.declaration import Search
from gleak.studies.study_file import Axes, GridFile, Item, StudyFile, WrittenAxis

PAPER: Scale = "paper"
ITEM_KEYS = ("name", "base", "search")
ONLY = "only"


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
    search: Search | None = None

    @property
    def substituted(self) -> Spec:
        """Spec at the scale of the paper that this value stands beside published numbers for."""
        return self.original or self.base or self.spec

    def is_called(self, text: str, spec: Spec) -> bool:
        """Return True if a text is its name, or a spec its own at this or the paper's scale."""
        return text == self.variant or spec in (self.spec, self.base, self.original)

    def patched(self, fields: Mapping[str, Any]) -> AxisValue:
        """Return the value with fields changed by a scale."""
        base = self.base and with_fields(self.base, fields)
        return replace(
            self, spec=with_fields(self.spec, fields), base=base, original=self.substituted
        )


def with_fields(spec: Spec, fields: Mapping[str, Any]) -> Spec:
    """Return a spec with other values in some fields; a mapping changes fields of a nested spec.

    Raises:
        SpecError: an unknown field, a bad value, or fields of a nested spec that is not there.
    """
    values = {key: _nested(spec, key, value) for key, value in fields.items()}
    found: Spec = changed(spec, values)
    return found


def _nested(spec: Spec, key: str, value: Any) -> Any:
    if not isinstance(value, Mapping):
        return _as_text(value)
    found = getattr(spec, key, None)
    if not isinstance(found, Spec):
        raise SpecError(f"{spec}: field {key!r} is {found}, which has no fields to change")
    return with_fields(found, value)


def _as_text(value: Any) -> Any:
    """Return what a spec string would hold: YAML's null and text alike."""
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
        return value.patched(fields) if fields else value

    def check(self) -> None:
        """Refuse keys that matched no value.

        Raises:
            SpecError: names the first such key and the nearest valid one.
        """
        for key in self.changes:
            if key not in self.matched:
                raise SpecError(f"{key!r} matches no {self.level}; {nearest(key, self.valid)}")


def _fits(spec: Spec, key: str, value: Any) -> bool:
    """Return True if a spec has a field, and a nested spec in it if the value is fields of that."""
    nested = isinstance(getattr(spec, key, None), Spec)
    return key in type(spec).model_fields and (nested or not isinstance(value, Mapping))


class Variants:
    """The named specs of a study.

    Args:
        written: level -> name -> spec string or fields.

    Raises:
        SpecError: an unknown level, a circular base, or two variants of one label.
    """

    def __init__(self, written: Mapping[str, Mapping[str, Item]]) -> None:
        self._written = written
        for level, items in written.items():
            with error_context("variants"):
                if level not in LEVELS:
                    raise SpecError(f"unknown level {level!r}; {nearest(level, LEVELS)}")
                self._check_labels(level, items)

    @staticmethod
    def _check_labels(level: str, items: Mapping[str, Item]) -> None:
        first: dict[str, str] = {}
        for name, item in items.items():
            label = _label(name, item)
            if first.setdefault(label, name) != name:
                raise SpecError(
                    f"{level}: {first[label]!r} and {name!r} have the same label {label!r}; give "
                    "one of them another"
                )

    def names(self, level: str) -> list[str]:
        """Return the names at a level."""
        return list(self._written.get(level, {}))

    def find(self, level: str, name: str, users: tuple[str, ...] = ()) -> AxisValue:
        """Return a variant at the scale of the paper.

        Args:
            level: of its spec.
            name: of the variant.
            users: variants whose base it is, for errors.

        Raises:
            SpecError: it cannot be used as written, or is a base of its own base.
        """
        if name in users:
            circle = " -> ".join([*users, name])
            raise SpecError(f"variants: {level}: circular base: {circle}; name another base")
        item = self._written[level][name]
        with error_context(f"variant {name!r}"):
            if isinstance(item, str):
                spec = parse(level, item)
            else:
                fields = {key: value for key, value in item.items() if key != "label"}
                (spec,) = _specs(level, fields, lambda base: self.spec(level, base, (*users, name)))
        return AxisValue(spec, variant=name, label=_label(name, item))

    def specs(self, level: str) -> dict[str, Spec]:
        """Return the spec of every variant of a level at the scale of the paper."""
        return {name: self.find(level, name).spec for name in self.names(level)}

    def spec(self, level: str, text: str, users: tuple[str, ...] = ()) -> Spec:
        """Return the spec of a variant's name or of a spec string."""
        if text in self._written.get(level, {}):
            return self.find(level, text, users).spec
        try:
            found: Spec = parse(level, text)
        except SpecError as error:
            if known := self.names(level):
                raise SpecError(f"{error}; or a variant: {', '.join(known)}") from None
            raise
        return found


def _label(name: str, item: Item) -> str:
    return name if isinstance(item, str) else str(item.get("label", name))


def _specs(level: str, fields: Mapping[str, Any], find_base: Any) -> Iterator[Spec]:
    """Make the specs of a mapping with a name or a base; one for each element of its lists."""
    given = {key: value for key, value in fields.items() if key not in ITEM_KEYS}
    lists = {key: value for key, value in given.items() if isinstance(value, list)}
    for chosen in product(*lists.values()):
        values = {**given, **dict(zip(lists, chosen, strict=True))}
        if "name" in fields:
            cls = find(level, str(fields["name"]))
            yield build_spec(cls, {key: _as_text(value) for key, value in values.items()})
        else:
            yield with_fields(find_base(fields["base"]), values)


class AxisReader:
    """Reads the axes of a study's grids at one scale.

    Args:
        study: as written.
        scale: one of `gleak.core.settings.SCALES`.
        searches: of the study, at the scale.
    """

    def __init__(self, study: StudyFile, scale: Scale, searches: Mapping[str, Search]) -> None:
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
        """The same study at the scale of the paper."""
        return self if self.scale == PAPER else AxisReader(self.study, PAPER, self.searches)

    def read(self, level: str, grid: GridFile) -> list[AxisValue]:
        """Return the values of one axis of a grid.

        Raises:
            SpecError: what cannot be used as written.
        """
        changes = getattr(grid, self.scale, None) or Axes()
        own = getattr(changes, level)
        if own is not None and not is_patch(own):
            return self._items(level, own)
        return self._patch(level, self._unpatched(level, grid), own)

    def _unpatched(self, level: str, grid: GridFile) -> list[AxisValue]:
        written = getattr(grid, level)
        if level in self.replaced:
            return self._items(level, self.replaced[level])
        if written is not None:
            return self.at_paper._items(level, written)
        return [self.at_paper.base(level)]

    def _patch(
        self, level: str, values: list[AxisValue], own: WrittenAxis | None
    ) -> list[AxisValue]:
        changes = dict(own) if isinstance(own, Mapping) else {}
        if (only := changes.pop(ONLY, None)) is not None:
            values = [self._one_of(level, str(text), values) for text in only]
        if level in self.patches:
            values = [self.patches[level].apply(value) for value in values]
        patch = Patch(level, changes)
        found = [patch.apply(value) for value in values]
        patch.check()
        return found

    def _one_of(self, level: str, text: str, values: Sequence[AxisValue]) -> AxisValue:
        """Return the value of an axis that a variant's name or a spec string means."""
        named = next((value for value in values if value.variant == text), None)
        spec = None if named else self.variants.spec(level, text)
        found = named or next((v for v in values if spec in (v.spec, v.base)), None)
        if found is None:
            known = {value.variant or str(value.spec) for value in values}
            raise SpecError(f"only: {text!r} is not on the axis; {nearest(text, known)}")
        return found

    def check_patches(self) -> None:
        """Refuse patches of the study that match no value of any grid that was read.

        Raises:
            SpecError: names the scale, the level and the key.
        """
        for level, patch in self.patches.items():
            with error_context(f"scales, {self.scale}, {level}"):
                patch.check()

    def base(self, level: str) -> AxisValue:
        """Return the study's base spec of a level, as it is at the scale.

        Raises:
            SpecError: the study has none.
        """
        if level not in self.study.base:
            raise SpecError(
                "has no values: give a spec or a list of them, or the study a base for this level"
            )
        if level in self.replaced:
            values = self._items(level, self.replaced[level])
        else:
            values = self.at_paper._items(level, self.study.base[level])
        if len(values) != 1:
            raise SpecError(f"the study's base has {len(values)} values, and needs one")
        return self.patches[level].apply(values[0]) if level in self.patches else values[0]

    def _items(self, level: str, axis: WrittenAxis) -> list[AxisValue]:
        items = axis if isinstance(axis, list) else [axis]
        if not items:
            raise SpecError("has no values; give a spec or a list of them")
        return [value for item in items for value in self._item(level, item)]

    def _item(self, level: str, item: Item) -> Iterator[AxisValue]:
        """Make the values of one item."""
        if isinstance(item, str):
            yield self._named(level, item)
        elif "search" in item:
            yield self._searched(level, item)
        elif "name" in item or "base" in item:
            specs = _specs(level, item, lambda base: self.variants.spec(level, base))
            yield from map(AxisValue, specs)
        else:
            if level not in self.study.base:
                keys = ", ".join(ITEM_KEYS)
                raise SpecError(
                    f"{dict(item)} changes fields of the study's base, which has no {level}; add "
                    f"one there, or one of the keys {keys} here"
                )
            base = self.base(level).spec
            specs = _specs(level, {"base": "", **item}, lambda _: base)
            yield from map(AxisValue, specs)

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
