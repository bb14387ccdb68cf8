"""Completion of names, specs and studies in the shell, by argcomplete.

It is switched on in bash or zsh by ``eval "$(register-python-argcomplete gleak)"``.
"""

from __future__ import annotations

from argparse import Action
from collections.abc import Callable
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
    """Return a completer of specs of some kinds, by default of all."""

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
    fields = [key for key in cls.model_fields if key not in given]
    assignments = []
    for key in fields:
        annotation = cls.model_fields[key].annotation
        values = (True, False) if annotation is bool else get_args(annotation)
        if all(isinstance(value, str | int) for value in values):
            assignments += [f"{key}={format_value(value)}" for value in values]
    return [*(f"{key}=" for key in fields), *assignments]


def studies(prefix: str, **_: Any) -> list[str]:
    """Return the names of the study files in ``studies/`` that begin with a prefix."""
    return sorted(path.stem for path in Path("studies").glob(f"{prefix}*.yaml"))
