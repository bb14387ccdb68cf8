"""Commands ``gleak list`` and ``gleak describe``: tables of registered names."""

from __future__ import annotations

import re
from argparse import ArgumentParser, Namespace
from inspect import getdoc
from itertools import groupby, product
from pathlib import Path
from sys import modules
from typing import Any

from pydantic.fields import FieldInfo
from tabulate import tabulate

from gleak.cli.common import settings_here
from gleak.cli.completion import kinds, offer, specs_of
from gleak.core.errors import IncompatibleError, SpecError, nearest
from gleak.core.registry import PACKAGES, find, kinds_of, levels_of_kind, load, parse
from gleak.core.spec import Spec, allowed_values, format_spec, format_value, split_spec
from gleak.knowledge.base import Pretraining
from gleak.studies.cell import LEVELS, Cell, Paths

EQUATION = re.compile(r"(?:Eq\.|Equations?|Algorithm) \d+[a-z]?(?:(?:, | and | to )\d+)*")
Record = dict[str, str]
RESULTS = Path("results")
CANDIDATES = {
    "dataset": ("digits", "photos", "breast_cancer"),
    "model": (
        *("lenet", "fc2", "lenet5", "vgg_small", "mlp", "vgg16", "resnet20"),
        *("planted", "planted_kernels"),
    ),
    "training": ("untrained", "central", "captured"),
    "crafting": ("honest", "mkor", "fishing", "imprint", "trap_weights", "qbi", "loki"),
    "client": (
        *("fedsgd", "fedsgd+batch_size=4", "fedavg+local_steps=5", "fedsgd+loss=nll_raw"),
        *("epochs", "captured"),
    ),
    "defense": ("none",),
}
"""Specs of the levels before that of an example, the preferred first."""
FILES = {
    "dataset": "dataset.h5",
    "model": "untrained/model.h5",
    "training": "model.h5",
    "crafting": "scores.csv",
    "client": "none/update.h5",
    "defense": "update.h5",
    "attack": "scores.csv",
    "membership": "scores.csv",
    "audit": "scores.csv",
}


def add_list(command: ArgumentParser) -> None:
    kind = command.add_argument("kind", nargs="?", metavar="KIND", help="dataset, attack, ...")
    offer(kind, kinds)


def run_list(arguments: Namespace) -> int:
    settings_here()
    print(list_registered(arguments.kind))
    return 0


def add_describe(command: ArgumentParser) -> None:
    text = "a name, or a spec such as cpl+restarts=2"
    offer(command.add_argument("name", metavar="NAME", help=text), specs_of())


def run_describe(arguments: Namespace) -> int:
    settings_here()
    print(describe(arguments.name))
    return 0


def list_registered(kind: str | None = None) -> str:
    """Return name and summary of all registered classes, of one kind or of all.

    A family is a module; its heading is the first line of the module's docstring.
    """
    parts = []
    for shown in PACKAGES if kind is None else (kind,):
        width = max(map(len, load(shown)))
        lines = [shown]
        for heading, members in families(shown).items():
            lines.append(f"  {heading}")
            lines += (f"    {cls.name:<{width}}  {summary(cls)}" for cls in members)
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def families(kind: str) -> dict[str, list[type[Spec]]]:
    """Return the registered classes of a kind by the heading of their family."""
    classes = sorted(load(kind).values(), key=lambda cls: (cls.__module__, cls.name))
    return {
        summary(modules[module]).rstrip(".:"): list(members)
        for module, members in groupby(classes, lambda cls: cls.__module__)
    }


def describe(text: str) -> str:
    """Return docstring, source and fields of a registered name, for every kind that has it.

    The values of a spec are listed with the defaults.
    """
    name, fields = split_spec(text)
    known_kinds = kinds_of(name)
    if not known_kinds:
        names = {known for kind in PACKAGES for known in load(kind)}
        raise SpecError(f"unknown name {name!r}; {nearest(name, names)}")
    return "\n\n\n".join(
        _describe_class(find(kind, name), parse(kind, text) if fields else None)
        for kind in known_kinds
    )


def align(records: list[Record]) -> str:
    """Format records as a table without its empty columns."""
    full = [key for key in records[0] if any(record[key] for record in records)]
    rows = [{key: record[key] for key in full} for record in records]
    return tabulate(rows, "keys", tablefmt="simple", disable_numparse=True)


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
    places = EQUATION.findall(getdoc(cls) or "")
    for key, field in cls.model_fields.items():
        if EQUATION.search(text := _extra(field, "source")):
            places.append(f"{text} ({key})")
    return "; ".join(dict.fromkeys(places))


def _extra(field: FieldInfo, key: str) -> str:
    extra = field.json_schema_extra
    return str(extra.get(key, "")) if isinstance(extra, dict) else ""


def example(cls: type[Spec], spec: Spec | None = None) -> str:
    """Return a command that makes a file with this spec; empty if there is none."""
    try:
        path = example_of(spec or parse(cls.kind, cls.name))
    except SpecError:
        return ""
    return f"snakemake {path}" if path else ""


def example_of(spec: Spec) -> str:
    """Return the path of a file that uses a spec; empty if its kind is not part of paths."""
    if spec.kind == "knowledge":
        for dataset in CANDIDATES["dataset"]:
            try:
                return str(Paths(RESULTS).knowledge(Pretraining.parse(dataset, str(spec))))
            except (SpecError, IncompatibleError):
                continue
    level = [*levels_of_kind(spec.kind), spec.kind][0]
    if level not in LEVELS:
        return ""
    levels = LEVELS[: LEVELS.index(level)]
    for texts in product(*(CANDIDATES[level] for level in levels)):
        try:
            cell = Cell.parse({**dict(zip(levels, texts, strict=True)), level: str(spec)})
        except (SpecError, IncompatibleError):
            continue
        return str(Paths(RESULTS).folder(cell) / FILES[spec.kind])
    return ""


def describe_field(key: str, field: FieldInfo, spec: Spec | None = None) -> Record:
    """Return the row of a field in the table of a class, with its value in ``spec``."""
    default = field.get_default(call_default_factory=True)
    return {
        "field": key,
        "value": "" if spec is None else _text(getattr(spec, key)),
        "default": "required" if field.is_required() else _text(default),
        "allowed": allowed_values(field),
        "unit": _extra(field, "unit"),
        "description": field.description or "",
        "source": _extra(field, "source"),
    }


def _text(value: Any) -> str:
    """Format a value as in a spec, after ``field=``."""
    return format_spec(value, "~") if isinstance(value, Spec) else format_value(value)


def summary(documented: object) -> str:
    """Return the first line of a docstring."""
    return (getdoc(documented) or "").partition("\n")[0]
