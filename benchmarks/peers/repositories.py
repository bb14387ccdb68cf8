"""Repositories of other authors: their modules, from a folder of the user."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock


def imported(folder: Path, module: str) -> Any:
    """Import a module of a repository.

    Raises:
        FileNotFoundError: the repository is not there.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is not there")
    sys.path.insert(0, str(folder))
    return importlib.import_module(module)


def replace(*modules: str) -> None:
    """Put a stand-in for modules that a repository imports, but its image attacks do not use."""
    for module in modules:
        sys.modules.setdefault(module, MagicMock())
