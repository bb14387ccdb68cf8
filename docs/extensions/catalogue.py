"""The catalogue of registered classes: what they compute, their fields and sources."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from sys import modules
from typing import Any

from pydantic.fields import FieldInfo

from docs.extensions.markdown import blocks, code, docstring, plain, summary, table
from gleak.core.registry import load
from gleak.core.spec import Spec, allowed_values, format_spec, format_value

HEADINGS = ("field", "default", "allowed", "unit", "description", "source")


def describe_kind(kind: str, mark: str = "##") -> str:
    """Return an overview of a kind's names by family, then one entry for each name.

    Args:
        kind: a key of `gleak.core.registry.PACKAGES`.
        mark: what headings of entries begin with.
    """
    classes = sorted(load(kind).values(), key=lambda cls: (cls.__module__, cls.name))
    families = [
        "\n".join([f"- {family(module)}", *map(_line, members)])
        for module, members in groupby(classes, lambda cls: cls.__module__)
    ]
    entries = sorted(classes, key=lambda cls: cls.name)
    return blocks(
        "\n".join(families),
        *(describe_class(cls, mark) for cls in entries),
    )


def _line(cls: type[Spec]) -> str:
    return f"  - [`{cls.name}`](#{anchor(cls)}): {summary(cls)}"


def family(module: str) -> str:
    """Return the first line of a module's docstring, without punctuation at its end."""
    return summary(modules[module]).rstrip(".:")


def anchor(cls: type[Spec]) -> str:
    """Return the name of an entry in links."""
    return f"{cls.kind}-{cls.name}".replace("_", "-")


def describe_class(cls: type[Spec], mark: str) -> str:
    """Return the entry of a class: docstring, source, fields and module."""
    rows = [describe_field(key, field) for key, field in cls.model_fields.items()]
    return blocks(
        f"({anchor(cls)})=\n{mark} `{cls.name}`",
        docstring(cls),
        f"Source: {plain(cls.source)}." if cls.source else "",
        table(HEADINGS, rows) or "It has no fields.",
        f"Module: `{cls.__module__}`.",
    )


def describe_field(key: str, field: FieldInfo) -> list[str]:
    """Return the row of a field; the columns are `HEADINGS`."""
    extra = field.json_schema_extra
    facts: Mapping[str, Any] = extra if isinstance(extra, dict) else {}
    default = field.get_default(call_default_factory=True)
    text = format_spec(default, "~") if isinstance(default, Spec) else format_value(default)
    return [
        code(key),
        "required" if field.is_required() else code(text),
        allowed_values(field),
        str(facts.get("unit", "")),
        plain(field.description or ""),
        plain(str(facts.get("source", ""))),
    ]
