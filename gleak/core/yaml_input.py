"""Reading of user-written YAML files; all faults of a file are reported in one error."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from gleak.core.errors import SpecError, nearest

M = TypeVar("M", bound=BaseModel)
MOST_VALUES = 100_000
"""Maximum number of values in a file with aliases expanded; nested aliases grow exponentially."""
DEEPEST = 100
"""Maximum nesting; libyaml composes nodes recursively, and too many levels overflow its stack."""
UNREADABLE = (
    yaml.YAMLError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
"""Errors that PyYAML raises on invalid YAML, on values invalid for their type (a date of the 99th
month), and on excessive nesting."""
_Parser: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""Parser of libyaml, five times as fast, where PyYAML was built with it."""


class _Loader(_Parser):
    """Loader of plain values, which counts them before it builds them."""

    def get_single_node(self) -> yaml.Node | None:
        node: yaml.Node | None = super().get_single_node()
        if node and _written_out(node, {}) > MOST_VALUES:
            raise yaml.YAMLError(f"more than {MOST_VALUES} values with aliases expanded")
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.value in seen and key.tag != "tag:yaml.org,2002:merge":
                line = key.start_mark.line + 1
                raise yaml.YAMLError(f"line {line}: key {key.value!r} is given twice")
            seen.add(str(key.value))
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return mapping


def _check_depth(text: str) -> None:
    """Reject excessive nesting, from the parser's events, which are not read recursively."""
    depth = 0
    for event in yaml.parse(text, Loader=_Parser):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise yaml.YAMLError(f"more than {DEEPEST} levels of nesting")


def _written_out(node: yaml.Node, known: dict[int, int]) -> int:
    """Count the values of a node with aliases expanded; a node inside itself exceeds any limit."""
    if id(node) not in known:
        known[id(node)] = MOST_VALUES + 1
        parts = node.value if isinstance(node, yaml.CollectionNode) else []
        below = chain.from_iterable(parts) if isinstance(node, yaml.MappingNode) else parts
        known[id(node)] = 1 + sum(_written_out(part, known) for part in below)
    return known[id(node)]


def load_mapping(path: Path, what: str, keys: str) -> dict[str, Any]:
    """Read a YAML file that contains a mapping.

    Args:
        path: the file.
        what: kind of file in error messages ("study file").
        keys: examples of its keys in error messages.

    Raises:
        SpecError: the file cannot be read, is not YAML, or contains no mapping.
    """
    try:
        text = path.read_text(encoding="utf-8")
        _check_depth(text)
        content = yaml.load(text, Loader=_Loader)
    except OSError as error:
        raise SpecError(f"{path}: cannot read the {what} ({error.strerror})") from None
    except UNREADABLE as error:
        raise SpecError(f"{path}: not YAML: {error}") from None
    if not isinstance(content, dict):
        raise SpecError(f"{path}: the {what} must be a mapping: {keys}")
    return content


def read_model(cls: type[M], written: Mapping[str, Any], where: str) -> M:
    """Build a model from a mapping.

    Raises:
        SpecError: unknown keys (with the nearest valid one), missing ones, and bad values.
    """
    try:
        return cls.model_validate(written)
    except ValidationError as error:
        faults = "; ".join(_describe(cls, fault) for fault in error.errors())
        raise SpecError(f"{where}: {faults}") from None


def at_scale(file: BaseModel, cls: type[M], scale: str) -> M:
    """Return the content of a file at a scale, whose keys replace those of the file.

    Args:
        file: model with the fields of ``cls``, and one of that type for each scale that differs.
        cls: fields that a scale may set.
        scale: one of `gleak.core.settings.SCALES`.
    """
    content: dict[str, Any] = {}
    for part in filter(None, (file, getattr(file, scale, None))):
        content |= part.model_dump(include=set(cls.model_fields), exclude_none=True)
    return cls(**content)


def _describe(cls: type[BaseModel], fault: Any) -> str:
    key = ".".join(map(str, fault["loc"]))
    if fault["type"] == "extra_forbidden":
        return f"unknown key {key!r}; {nearest(str(fault['loc'][-1]), cls.model_fields)}"
    if fault["type"] == "missing":
        return f"key {key!r} is missing"
    if fault["type"] == "value_error" and not key:
        return str(fault["ctx"]["error"])
    return f"{key} = {fault['input']!r}: {fault['msg']}"
