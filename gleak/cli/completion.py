"""Completion of names, specs and studies in the shell, by argcomplete.

It is switched on in bash or zsh by ``eval "$(register-python-argcomplete gleak)"``.
"""

from __future__ import annotations

from argparse import Action
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_args

from gleak.core.errors import SpecError
from gleak.core.registry import PACKAGES, load
from gleak.core.spec import Spec, format_value, split_spec

Completer = Callable[..., list[str]]


def offer(action: Action, completer: Completer) -> None:
    """Set what the shell offers for an argument."""
    action.completer = completer  # type: ignore[attr-defined]


def kinds(prefix: str, **_: Any) -> list[str]:
    """Return the kinds of registered classes that begin with a prefix."""
    return [kind for kind in PACKAGES if kind.startswith(prefix)]


def specs_of(*wanted: str) -> Completer:
    """Return a completer of specs.

    Args:
        wanted: kinds; all unless given.
    """

    def complete_spec(prefix: str, **_: Any) -> list[str]:
        known = {name: cls for kind in wanted or PACKAGES for name, cls in load(kind).items()}
        before, plus, last = prefix.rpartition("+")
        if not plus:
            return [name for name in known if name.startswith(prefix)]
        name = before.partition("+")[0]
        options = _fields(known[name], before) if name in known else []
        return [f"{before}+{option}" for option in options if option.startswith(last)]

    return complete_spec


def _fields(cls: type[Spec], before: str) -> list[str]:
    """Return the fields that a spec does not set yet, with the values of those that have few."""
    try:
        _, given = split_spec(before)
    except SpecError:
        return []
    fields = {key: field for key, field in cls.model_fields.items() if key not in given}
    values = [
        f"{key}={format_value(value)}"
        for key, field in fields.items()
        for value in _choices(field.annotation)
    ]
    return [*(f"{key}=" for key in fields), *values]


def _choices(annotation: Any) -> Sequence[Any]:
    """Return the values of a field that accepts constants only; empty for others."""
    if annotation is bool:
        return (True, False)
    values = get_args(annotation)
    return values if all(isinstance(value, str | int) for value in values) else ()


def studies(prefix: str, **_: Any) -> list[str]:
    """Return the names of the study files in ``studies/`` that begin with a prefix."""
    return sorted(path.stem for path in Path("studies").glob(f"{prefix}*.yaml"))
