"""What people write into YAML files: read, and checked with all of its faults in one error."""

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
"""That one file stands for, aliases written out; a few lines of them can stand for any number."""
UNREADABLE = (
    yaml.YAMLError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
"""What PyYAML raises on text that is no YAML, on values that are none of their type (a date of the
99th month), and on what is nested too deep."""


class _Loader(yaml.SafeLoader):
    """Makes plain values alone, and only after their number is known."""

    def get_single_node(self) -> yaml.Node | None:
        node: yaml.Node | None = super().get_single_node()
        if node and _written_out(node, {}) > MOST_VALUES:
            raise yaml.YAMLError(f"with its aliases it stands for more than {MOST_VALUES} values")
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.value in seen and key.tag != "tag:yaml.org,2002:merge":
                line = key.start_mark.line + 1
                raise yaml.YAMLError(f"line {line}: key {key.value!r} is given twice")
            seen.add(str(key.value))
        found: dict[Any, Any] = super().construct_mapping(node, deep)
        return found


def _written_out(node: yaml.Node, known: dict[int, int]) -> int:
    """Values of a node with its aliases written out; one that holds itself has no end of them."""
    if id(node) not in known:
        known[id(node)] = MOST_VALUES + 1
        parts = node.value if isinstance(node, yaml.CollectionNode) else []
        below = chain.from_iterable(parts) if isinstance(node, yaml.MappingNode) else parts
        known[id(node)] = 1 + sum(_written_out(part, known) for part in below)
    return known[id(node)]


def load_mapping(path: Path, what: str, keys: str) -> dict[str, Any]:
    """The content of a YAML file.

    Args:
        path: the file.
        what: it is, for errors ("study file").
        keys: examples of what it holds, for errors.

    Raises:
        SpecError: it cannot be read, is not YAML, or holds no mapping.
    """
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)
    except OSError as error:
        raise SpecError(f"{path}: no {what} can be read there ({error.strerror})") from None
    except UNREADABLE as error:
        raise SpecError(f"{path}: not YAML: {error}") from None
    if not isinstance(content, dict):
        raise SpecError(f"{path}: a {what} holds a mapping: {keys}")
    return content


def read_model(cls: type[M], written: Mapping[str, Any], where: str) -> M:
    """Build a model from what was written.

    Raises:
        SpecError: unknown keys (with the nearest valid one), missing ones, and bad values.
    """
    try:
        return cls.model_validate(written)
    except ValidationError as error:
        faults = "; ".join(_describe(cls, fault) for fault in error.errors())
        raise SpecError(f"{where}: {faults}") from None


def at_scale(file: BaseModel, cls: type[M], scale: str) -> M:
    """What a file says at a scale: its own keys, and those of the scale in their place.

    Args:
        file: with the fields of ``cls``, and one of that type for each scale that differs.
        cls: what a scale may say.
        scale: one of `gleak.core.settings.SCALES`.
    """
    parts = [file, getattr(file, scale, None)]
    kept = [
        part.model_dump(include=set(cls.model_fields), exclude_none=True)
        for part in parts
        if part is not None
    ]
    return cls(**{key: value for part in kept for key, value in part.items()})


def _describe(cls: type[BaseModel], fault: Any) -> str:
    key = ".".join(map(str, fault["loc"]))
    if fault["type"] == "extra_forbidden":
        return f"unknown key {key!r}; {nearest(str(fault['loc'][-1]), cls.model_fields)}"
    if fault["type"] == "missing":
        return f"key {key!r} is missing"
    if fault["type"] == "value_error" and not key:
        return str(fault["ctx"]["error"])
    return f"{key} = {fault['input']!r}: {fault['msg']}"
