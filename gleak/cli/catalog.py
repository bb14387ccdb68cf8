"""Tables of registered names, for ``gleak list`` and ``gleak describe``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from inspect import getdoc
from itertools import groupby
from sys import modules
from typing import Any

from pydantic.fields import FieldInfo

from gleak.cli.examples import example_of
from gleak.core.errors import SpecError, nearest
from gleak.core.registry import PACKAGES, find, kinds_of, load, parse
from gleak.core.spec import Spec, allowed_values, format_spec, format_value, split_spec

REQUIRED = "required"
EQUATION = re.compile(r"(?:Eq\.|Equations?|Algorithm) \d+[a-z]?(?:(?:, | and | to )\d+)*")
Record = dict[str, str]


def list_registered(kind: str | None = None) -> str:
    """Return name and summary of all registered classes by kind and method family.

    A family is a module; its heading is the first line of the module's docstring.

    Args:
        kind: a key of `gleak.core.registry.PACKAGES`; None for all kinds.

    Raises:
        SpecError: there is no such kind.
    """
    kinds = PACKAGES if kind is None else (kind,)
    return "\n\n".join("\n".join([kind, *_families(kind)]) for kind in kinds)


def families(kind: str) -> dict[str, list[type[Spec]]]:
    """Return the registered classes of a kind by the heading of their family."""
    classes = sorted(load(kind).values(), key=lambda cls: (cls.__module__, cls.name))
    return {
        summary(modules[module]).rstrip(".:"): list(members)
        for module, members in groupby(classes, lambda cls: cls.__module__)
    }


def _families(kind: str) -> Iterator[str]:
    """Yield the lines of all families of a kind, in the order of their modules."""
    width = max(map(len, load(kind)))
    for heading, members in families(kind).items():
        yield f"  {heading}"
        yield from (f"    {cls.name:<{width}}  {summary(cls)}" for cls in members)


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
    from tabulate import tabulate

    headings = [key for key in records[0] if any(record[key] for record in records)]
    rows = [[record[key] for key in headings] for record in records]
    return tabulate(rows, headings, tablefmt="simple", disable_numparse=True)


def _describe_class(cls: type[Spec], spec: Spec | None) -> str:
    """Describe one class, with the values of ``spec`` if it is given."""
    records = [describe_field(key, field, spec) for key, field in cls.model_fields.items()]
    facts = {
        "canonical": str(spec) if spec else "",
        "source": cls.source,
        "equations": equations(cls),
        "example": example(cls, spec),
    }
    paragraphs = [
        f"{cls.kind} {cls.name}",
        getdoc(cls) or "",
        "\n".join(f"{key}: {value}" for key, value in facts.items() if value),
        align(records) if records else "It has no fields.",
    ]
    return "\n\n".join(filter(None, paragraphs))


def equations(cls: type[Spec]) -> str:
    """Return the equations that docstring and fields refer to, each with its place."""
    documented = EQUATION.findall(getdoc(cls) or "")
    sources = {
        key: str(field.json_schema_extra["source"])
        for key, field in cls.model_fields.items()
        if isinstance(field.json_schema_extra, dict)
    }
    fields = [f"{text} ({key})" for key, text in sources.items() if EQUATION.search(text)]
    return "; ".join(dict.fromkeys([*documented, *fields]))


def example(cls: type[Spec], spec: Spec | None = None) -> str:
    """Return a command that makes a file with this spec; empty if there is none."""
    try:
        path = example_of(spec or parse(cls.kind, cls.name))
    except SpecError:
        return ""
    return f"snakemake {path}" if path else ""


def describe_field(key: str, field: FieldInfo, spec: Spec | None = None) -> Record:
    """Return the row of a field in the table of a class, with its value in ``spec``."""
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


def summary(documented: object) -> str:
    """Return the first line of a docstring."""
    return (getdoc(documented) or "").partition("\n")[0]
