"""The catalogue of registered classes, as ``gleak list`` and ``gleak describe`` show them."""

from __future__ import annotations

from docs.extensions.markdown import blocks, code, docstring, plain, table
from gleak.cli.catalog import Record, describe_field, equations, example, families, summary
from gleak.core.registry import load
from gleak.core.spec import Spec

HEADINGS = ("field", "default", "allowed", "unit", "description", "source")


def describe_kind(kind: str, mark: str = "##") -> str:
    """Return an overview of a kind's names by family, then one entry for each name.

    Args:
        kind: a key of `gleak.core.registry.PACKAGES`.
        mark: what headings of entries begin with.
    """
    overview = [
        "\n".join([f"- {plain(heading)}", *map(_line, members)])
        for heading, members in families(kind).items()
    ]
    entries = [describe_class(cls, mark) for cls in load(kind).values()]
    return blocks("\n".join(overview), *entries)


def _line(cls: type[Spec]) -> str:
    return f"  - [`{cls.name}`](#{anchor(cls)}): {plain(summary(cls))}"


def anchor(cls: type[Spec]) -> str:
    """Return the name of an entry in links."""
    return f"{cls.kind}-{cls.name}".replace("_", "-")


def describe_class(cls: type[Spec], mark: str) -> str:
    """Return the entry of a class: docstring, source, equations, module, example and fields."""
    facts = {
        "Source": plain(cls.source),
        "Equations": plain(equations(cls)),
        "Module": code(cls.__module__),
    }
    command = example(cls)
    rows = [_row(describe_field(key, field)) for key, field in cls.model_fields.items()]
    return blocks(
        f"({anchor(cls)})=\n{mark} `{cls.name}`",
        docstring(cls),
        "\n".join(f"- {key}: {value}" for key, value in facts.items() if value),
        f"```sh\n{command}\n```" if command else "",
        table(HEADINGS, rows) or "It has no fields.",
    )


def _row(field: Record) -> list[str]:
    """Return the cells of a field; the columns are `HEADINGS`."""
    marked = {"field": code(field["field"]), "default": code(field["default"])}
    return [marked.get(heading) or plain(field[heading]) for heading in HEADINGS]
