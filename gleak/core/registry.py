"""Registry of spec classes by kind and name.

On first use of a kind, `load` imports those modules of its package (`gleak.attacks`, say) that
register a class, and the plug-ins (`gleak.core.plugins`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BeforeValidator

from gleak.core.errors import SpecError, nearest
from gleak.core.plugins import load_plugins
from gleak.core.spec import Spec, build_spec, split_spec

PACKAGES = {
    "dataset": "gleak.data",
    "model": "gleak.models",
    "training": "gleak.training",
    "knowledge": "gleak.knowledge",
    "crafting": "gleak.crafting",
    "client": "gleak.clients",
    "client_optimizer": "gleak.optimizers",
    "schedule": "gleak.optimizers",
    "defense": "gleak.defenses",
    "attack": "gleak.attacks",
    "membership": "gleak.membership",
    "audit": "gleak.membership",
    "start": "gleak.attacks.matching",
    "code": "gleak.attacks.matching",
    "distance": "gleak.attacks.matching",
    "optimizer": "gleak.attacks.matching",
    "metric": "gleak.metrics",
    "figure": "gleak.figures.kinds",
}
KINDS_AT = {"attack": ("attack", "membership", "audit")}
"""Level of a path -> the kinds of its specs, if these are not only the kind of its own name. A name
is registered for one of them only."""
_REGISTERED: dict[str, dict[str, type[Spec]]] = {kind: {} for kind in PACKAGES}
S = TypeVar("S", bound=type[Spec])


def register(name: str) -> Callable[[S], S]:
    """Register a spec class under a name of its kind; a class decorator.

    Raises:
        SpecError: the name is registered for another class.
    """

    def decorate(cls: S) -> S:
        known = _REGISTERED[cls.kind].get(name)
        if known is not None and _place(known) != _place(cls):
            raise SpecError(
                f"{cls.kind} {name!r} is registered twice: by {_place(known)} and {_place(cls)}"
            )
        cls.name = name
        _REGISTERED[cls.kind][name] = cls
        return cls

    return decorate


def _place(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def load(kind: str) -> dict[str, type[Spec]]:
    """Return all registered classes of a kind by name.

    Raises:
        SpecError: unknown kind, or a plug-in that cannot be imported.
    """
    return dict(sorted(_load(kind).items()))


def _load(kind: str) -> dict[str, type[Spec]]:
    if not isinstance(kind, str) or kind not in PACKAGES:
        raise SpecError(f"unknown kind {kind!r}; {nearest(kind, PACKAGES)}")
    _import_package(PACKAGES[kind])
    load_plugins()
    return _REGISTERED[kind]


@cache
def _import_package(package: str) -> None:
    """Import the modules of a package, and of those in it, that register a class."""
    spec = find_spec(package)
    assert spec and spec.origin
    folder = Path(spec.origin).parent
    for file in sorted(folder.rglob("*.py")):
        if b"\n@register(" in file.read_bytes():
            import_module(".".join((package, *file.relative_to(folder).with_suffix("").parts)))


def find(kind: str, name: str) -> type[Spec]:
    """Return the class registered under a name.

    Raises:
        SpecError: unknown name; the error lists the kinds that have it, and the nearest name.
    """
    if registered := _REGISTERED.get(kind, {}).get(name):
        return registered
    known = _load(kind)
    if name not in known:
        kinds = kinds_of(name)
        elsewhere = f"{name!r} is a {' and a '.join(kinds)}; " if kinds else ""
        raise SpecError(f"unknown {kind} {name!r}; {elsewhere}{nearest(name, known)}")
    return known[name]


def kinds_of(name: str) -> list[str]:
    """Return the kinds in which a name is registered."""
    return [kind for kind in PACKAGES if name in _load(kind)]


def kinds_at(level: str) -> tuple[str, ...]:
    """Return the kinds of the specs that may stand at a level of a path."""
    return KINDS_AT.get(level, (level,))


def levels_of_kind(kind: str) -> list[str]:
    """Return the levels, besides one of the kind's own name, where its specs may stand."""
    return [level for level, kinds in KINDS_AT.items() if kind in kinds]


def kind_at(level: str, name: str) -> str:
    """Return the kind of a name at a level of a path; of an unknown name the level's own."""
    first, *others = kinds_at(level)
    if name in _REGISTERED.get(first, {}):
        return first
    return next((kind for kind in others if name in _load(kind)), first)


def parse_at(level: str, text: str) -> Any:
    """Read a spec string of any kind that may stand at a level of a path; errors as for `parse`."""
    return parse(kind_at(level, text.partition("+")[0]), text)


def parse(kind: str, text: str, separator: str = "+") -> Any:
    """Read a spec string of a kind; missing fields have their defaults.

    Raises:
        SpecError: unknown name or field, or a value out of range.
    """
    name, fields = _split(text, separator)
    return _build(find(kind, name), fields)


@cache
def _split(text: str, separator: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    name, fields = split_spec(text, separator)
    return name, tuple(fields.items())


@cache
def _build(cls: type[Spec], fields: tuple[tuple[str, str], ...]) -> Spec:
    """Return a spec of these fields; specs are immutable, so each is built once."""
    return build_spec(cls, dict(fields))


@dataclass(frozen=True)
class NestedKind(BeforeValidator):
    """Annotation of a field that is itself a spec of a kind."""

    kind: str = ""


def nested(kind: str) -> NestedKind:
    """Return the annotation of a field that is itself a spec of a kind."""

    def read(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return parse(kind, value, "~")
        except SpecError as error:
            raise ValueError(str(error)) from None

    return NestedKind(read, kind=kind)
