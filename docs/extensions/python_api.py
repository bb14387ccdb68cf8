"""The Python API: what the package ``gleak`` exports, as directives of Sphinx's autodoc."""

from __future__ import annotations

import re
from inspect import isclass, isfunction
from types import ModuleType
from typing import Any

import gleak
from docs.extensions.markdown import blocks

STARRED = re.compile(r"(?<![\w`*])\*(?=\w)")


def escape_stars(*event: Any) -> None:
    """Escape stars such as that of ``(N, *shape)``, as ``autodoc-process-docstring`` expects."""
    lines: list[str] = event[-1]
    lines[:] = [STARRED.sub(r"\*", line) for line in lines]


def describe_api() -> str:
    """Return one directive for each exported name: functions, then classes, then modules."""
    exported = {name: getattr(gleak, name) for name in gleak.__all__ if name.isidentifier()}
    functions = [name for name, thing in exported.items() if isfunction(thing)]
    classes = [name for name, thing in exported.items() if isclass(thing)]
    modules = [name for name, thing in exported.items() if isinstance(thing, ModuleType)]
    return blocks(
        "## Functions",
        *(directive("autofunction", name) for name in sorted(functions)),
        "## Results and errors",
        *(
            directive("autoclass", name, ":members:", ":exclude-members: of")
            for name in sorted(classes)
        ),
        *(describe_module(name) for name in modules),
    )


def describe_module(name: str) -> str:
    """Return the section of a module: its functions whose names begin with ``check_``."""
    module = getattr(gleak, name)
    checks = [
        key
        for key, thing in vars(module).items()
        if key.startswith("check_") and thing.__module__.startswith(module.__name__)
    ]
    return blocks(
        f"## `gleak.{name}`",
        *(directive("autofunction", f"{name}.{key}") for key in sorted(checks)),
    )


def directive(kind: str, name: str, *options: str) -> str:
    """Return a directive of autodoc for a name in ``gleak``."""
    lines = [f".. {kind}:: gleak.{name}", *(f"   {option}" for option in options)]
    return "\n".join(["```{eval-rst}", *lines, "```"])
