"""Workaround for ``import torchvision`` if its compiled operators cannot be loaded.

This is the case for a CPU build of torch beside torchvision's default wheel: its operators need
CUDA, stay undeclared, and the import then fails although gleak never calls them.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from gleak.core.lazy import torch

if TYPE_CHECKING:
    from torch.library import Library

ARGUMENTS = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
COMPILED = "_C*"
"""Compiled operators in torchvision's folder: ``_C.so``, or ``_C_stable.so`` from 0.29 on."""
SCHEMAS = {name: name + ARGUMENTS for name in ("nms", "qnms")}


@cache
def ensure_operators() -> Library | None:
    """Declare the operators that ``import torchvision`` requires, if they are missing.

    Call it before importing torchvision or a package that imports it (lpips). The compiled
    operators are tried first, since declaring an operator twice ends the process. The library of
    declarations is kept alive by this function's cache.
    """
    package = find_spec("torchvision")
    folders = package.submodule_search_locations if package else None
    for path in chain.from_iterable(Path(folder).glob(COMPILED) for folder in folders or []):
        if path.name.endswith(tuple(EXTENSION_SUFFIXES)):
            with suppress(OSError):
                torch.ops.load_library(str(path))
    operators = torch.ops.torchvision
    missing = [schema for name, schema in SCHEMAS.items() if not hasattr(operators, name)]
    if not missing:
        return None
    library = torch.library.Library("torchvision", "FRAGMENT")
    for schema in missing:
        library.define(schema)
    return library
