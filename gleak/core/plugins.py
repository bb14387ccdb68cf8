"""Plug-ins: modules of users that register attacks, defences, datasets and so on.

- An installed package declares the module as an entry point of the group ``gleak.plugins``, or
- the environment variable ``GLEAK_PLUGINS`` has its name, or several with commas, or
- the key ``plugins`` of ``config.yaml`` has it, which sets the variable for the jobs.
"""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Iterable
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from traceback import walk_tb

from gleak.core.errors import GleakError, SpecError

GROUP = "gleak.plugins"
VARIABLE = "GLEAK_PLUGINS"
PACKAGES = "site-packages"
_loaded: set[str] = set()
"""Modules whose import has begun; one that fails is removed."""


def use_plugins(modules: Iterable[str]) -> None:
    """Import plug-ins, in this process and in those that it starts.

    Raises:
        SpecError: a module cannot be imported; names it.
    """
    os.environ[VARIABLE] = ",".join(dict.fromkeys([*_named(), *modules]))
    load_plugins()


def load_plugins() -> None:
    """Import all plug-ins that are not imported yet."""
    if GROUP not in _loaded:
        _loaded.add(GROUP)
        for declared in entry_points(group=GROUP):
            _load(declared.module, f"entry point {declared.name}")
    for module in _named():
        _load(module, f"plugins or {VARIABLE}")


def _named() -> list[str]:
    return [name for name in os.environ.get(VARIABLE, "").split(",") if name]


def _load(module: str, source: str) -> None:
    if module in _loaded:
        return
    _loaded.add(module)
    try:
        import_module(module)
    except Exception as error:
        _loaded.discard(module)
        if isinstance(error, GleakError):
            raise SpecError(f"plug-in {module} ({source}): {error}") from None
        raise SpecError(
            f"plug-in {module} ({source}) cannot be imported: {type(error).__name__}: {error}; "
            f"{_remedy(module, error)}, or remove the plug-in"
        ) from error


def _remedy(module: str, error: Exception) -> str:
    """Say what to do about a module that is not found, or where an error arose in a plug-in."""
    if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
        return "add the folder of the module to PYTHONPATH"
    frames = [
        (Path(frame.f_code.co_filename), line) for frame, line in walk_tb(error.__traceback__)
    ]
    if isinstance(error, SyntaxError) and error.filename:
        frames.append((Path(error.filename), error.lineno or 1))
    places = [(file, line) for file, line in frames if _is_of_plugins(file)]
    own = [(file, line) for file, line in places if PACKAGES not in file.parts]
    return "correct {}, line {}".format(*(own or places)[-1]) if places else "correct its name"


def _is_of_plugins(file: Path) -> bool:
    """Return True if code is neither Python's own nor gleak's."""
    python = file.is_relative_to(sysconfig.get_path("stdlib")) and PACKAGES not in file.parts
    return not (
        python or file.name.startswith("<") or file.is_relative_to(Path(__file__).parents[1])
    )
