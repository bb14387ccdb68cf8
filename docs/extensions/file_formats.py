"""The formats of artifacts, from the classes that write and read them."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from docstring_parser import parse_from_object

import gleak.artifacts
from docs.extensions.markdown import blocks, code, docstring, plain, summary, table
from gleak.artifacts.encodings import ENCODINGS, Encoding
from gleak.artifacts.schema import ArraySchema, array_fields, attribute_fields
from gleak.artifacts.store import Artifact
from gleak.core.spec import format_value

ARRAYS = ("array", "dimensions", "type", "unit", "meaning")
ATTRIBUTES = ("attribute", "default", "meaning")
TYPES = {"number": "integer or float", "any": "integer, float or bool", "int": "integer"}


def describe_formats() -> str:
    """Return one section for each format, then one for each encoding of an update."""
    for module in iter_modules(gleak.artifacts.__path__, "gleak.artifacts."):
        import_module(module.name)
    formats = sorted(Artifact.__subclasses__(), key=lambda cls: cls.format)
    return blocks(
        "## Attributes of every file",
        table(ATTRIBUTES, describe_attributes(Artifact)),
        *map(describe_format, formats),
        "## Encodings of an update",
        *map(describe_encoding, ENCODINGS.values()),
    )


def describe_format(cls: type[Artifact]) -> str:
    """Return the section of a format: its arrays and its root attributes."""
    meanings, declared = parameters_of(cls), array_fields(cls)
    encoded = meanings.keys() - declared.keys() - attribute_fields(cls).keys()
    rows = [
        *([code(f"/{name}/<name>"), "", "encoded", "", meanings[name]] for name in sorted(encoded)),
        *(describe_array(f"/{name}", each, meanings[name]) for name, each in declared.items()),
    ]
    return blocks(
        f"## `{cls.format}`",
        f"{summary(cls)} Format version {cls.version}; class `{cls.__module__}.{cls.__name__}`.",
        docstring(cls).partition("\nArgs:")[0].partition("\n")[2].strip(),
        table(ARRAYS, rows),
        table(ATTRIBUTES, describe_attributes(cls)),
    )


def describe_encoding(cls: type[Encoding]) -> str:
    """Return the section of an encoding: its arrays."""
    meanings = parameters_of(cls)
    rows = [
        describe_array(name, schema, meanings.get(name, "")) for name, schema in cls.schemas.items()
    ]
    return blocks(f"### `{cls.code}`", summary(cls), table(ARRAYS, rows))


def describe_array(key: str, schema: ArraySchema, meaning: str) -> list[str]:
    """Return the row of an array, or of every array of a group; the columns are `ARRAYS`."""
    path = f"{key}/<name>" if schema.group else key
    kind = TYPES.get(schema.kind, schema.kind)
    absent = " (optional)" if schema.optional else ""
    return [code(path) + absent, code(" ".join(schema.dims)), kind, schema.units, meaning]


def describe_attributes(cls: type[Artifact]) -> list[list[str]]:
    """Return the rows of the root attributes that a class itself declares."""
    meanings = parameters_of(cls)
    inherited = attribute_fields(Artifact) if cls is not Artifact else {}
    return [
        [code(name), code(format_value(default)), meanings.get(name, "")]
        for name, default in attribute_fields(cls).items()
        if name not in inherited
    ]


def parameters_of(cls: type) -> dict[str, str]:
    """Return the descriptions of a class's fields from its docstring."""
    return {each.arg_name: plain(each.description or "") for each in parse_from_object(cls).params}
