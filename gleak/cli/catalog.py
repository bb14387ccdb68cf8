"""Tables of registered names, for ``gleak list`` and ``gleak describe``."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import getdoc
from typing import Any

from pydantic.fields import FieldInfo
from tabulate import tabulate

from gleak.core.errors import SpecError, nearest
from gleak.core.registry import PACKAGES, find, kinds_of, load, parse
from gleak.core.spec import Spec, allowed_values, format_spec, format_value, split_spec

REQUIRED = "required"
Record = dict[str, str]


def list_registered(kind: str | None = None) -> str:
    """Return a table of kind, name and summary of all registered classes.

    Args:
        kind: a key of `gleak.core.registry.PACKAGES`; None for all kinds.

    Raises:
        SpecError: there is no such kind.
    """
    kinds = PACKAGES if kind is None else (kind,)
    classes = [cls for kind in kinds for cls in load(kind).values()]
    return align([{"kind": cls.kind, "name": cls.name, "what": _summary(cls)} for cls in classes])


def describe(text: str) -> str:
    """Return docstring, source and fields of a registered name, for every kind that has it.

    Args:
        text: a name, or a spec, whose values are then listed with the defaults.

    Raises:
        SpecError: no kind has the name, or the spec is invalid.
    """
    name, fields = split_spec(text)
    kinds = kinds_of(name)
    if not kinds:
        names = {known for kind in PACKAGES for known in load(kind)}
        raise SpecError(f"unknown name {name!r}; {nearest(name, names)}")
    return "\n\n\n".join(
        _describe_class(find(kind, name), parse(kind, text) if fields else None) for kind in kinds
    )


def align(records: list[Record]) -> str:
    """Format records as a table without its empty columns."""
    headings = [key for key in records[0] if any(record[key] for record in records)]
    rows = [[record[key] for key in headings] for record in records]
    return tabulate(rows, headings, tablefmt="simple", disable_numparse=True)


def _describe_class(cls: type[Spec], spec: Spec | None) -> str:
    """Describe one class, with the values of ``spec`` if it is given."""
    records = [_describe_field(key, field, spec) for key, field in cls.model_fields.items()]
    paragraphs = [
        f"{cls.kind} {cls.name}",
        getdoc(cls) or "",
        f"source: {cls.source}" if cls.source else "",
        align(records) if records else "It has no fields.",
    ]
    return "\n\n".join(filter(None, paragraphs))


def _describe_field(key: str, field: FieldInfo, spec: Spec | None) -> Record:
    extra = field.json_schema_extra
    facts: Mapping[str, Any] = extra if isinstance(extra, dict) else {}
    default = field.get_default(call_default_factory=True)
    return {
        "field": key,
        "value": "" if spec is None else _text(getattr(spec, key)),
        "default": REQUIRED if field.is_required() else _text(default),
        "allowed": allowed_values(field),
        "unit": str(facts.get("unit", "")),
        "description": field.description or "",
        "source": str(facts.get("source", "")),
    }


def _text(value: Any) -> str:
    """Format a value as in a spec, after ``field=``."""
    return format_spec(value, "~") if isinstance(value, Spec) else format_value(value)


def _summary(cls: type[Spec]) -> str:
    return (getdoc(cls) or "").partition("\n")[0]
