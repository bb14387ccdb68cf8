"""Plug-ins: modules of users that register attacks, defences, datasets and so on.

A plug-in is found in one of three ways:

- an installed package declares it as an entry point of the group ``gleak.plugins``, whose value is
  the name of the module;
- the environment variable ``GLEAK_PLUGINS`` has the names of importable modules, separated by
  commas;
- the key ``plugins`` of ``config.yaml`` has them, which sets the variable for the jobs.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from importlib import import_module
from importlib.metadata import entry_points

from gleak.core.errors import GleakError, SpecError

GROUP = "gleak.plugins"
VARIABLE = "GLEAK_PLUGINS"
_loaded: set[str] = set()
"""Modules whose import has begun; one that fails is removed."""


def use_plugins(modules: Iterable[str]) -> None:
    """Import plug-ins, in this process and in those that it starts.

    Args:
        modules: names of importable modules.

    Raises:
        SpecError: a module cannot be imported.
    """
    os.environ[VARIABLE] = ",".join(dict.fromkeys([*_named(), *modules]))
    load_plugins()


def load_plugins() -> None:
    """Import all plug-ins that are not imported yet.

    Raises:
        SpecError: a module cannot be imported; names it.
    """
    if GROUP not in _loaded:
        _loaded.add(GROUP)
        for declared in entry_points(group=GROUP):
            _load(declared.module, f"entry point {declared.name}")
    for module in _named():
        _load(module, f"plugins or {VARIABLE}")


def _named() -> list[str]:
    """Return the modules of the environment variable."""
    return [name for name in os.environ.get(VARIABLE, "").split(",") if name]


def _load(module: str, source: str) -> None:
    if module in _loaded:
        return
    _loaded.add(module)
    try:
        import_module(module)
    except GleakError as error:
        _loaded.discard(module)
        raise SpecError(f"plug-in {module} ({source}): {error}") from None
    except Exception as error:
        _loaded.discard(module)
        raise SpecError(
            f"plug-in {module} ({source}) cannot be imported: {type(error).__name__}: {error}; add "
            "the folder of the module to PYTHONPATH, or remove the plug-in"
        ) from error
