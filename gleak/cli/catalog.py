"""What is registered, as text: the tables of ``gleak list`` and ``gleak describe``."""

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
    """A line for every registered thing: its kind, name, and the first line of its docstring.

    Args:
        kind: one of `gleak.core.registry.PACKAGES`; None for all of them.

    Raises:
        SpecError: no such kind.
    """
    kinds = PACKAGES if kind is None else (kind,)
    classes = [cls for kind in kinds for cls in load(kind).values()]
    return align([{"kind": cls.kind, "name": cls.name, "what": _summary(cls)} for cls in classes])


def describe(text: str) -> str:
    """What a name means, for every kind that has it: docstring, source and fields.

    Args:
        text: a name, or a whole spec string, whose values then stand beside the defaults.

    Raises:
        SpecError: no kind has the name, or the spec cannot be used as written.
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
    """Records below each other in columns; those columns that are empty throughout are left out."""
    headings = [key for key in records[0] if any(record[key] for record in records)]
    rows = [[record[key] for key in headings] for record in records]
    return tabulate(rows, headings, tablefmt="simple", disable_numparse=True)


def _describe_class(cls: type[Spec], spec: Spec | None) -> str:
    """Everything about one class; with the values of ``spec`` if there is one."""
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
    """A value as it is written after ``field=``."""
    return format_spec(value, "~") if isinstance(value, Spec) else format_value(value)


def _summary(cls: type[Spec]) -> str:
    return (getdoc(cls) or "").partition("\n")[0]
