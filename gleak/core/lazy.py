"""Libraries that are slow to import, loaded when first used.

`gleak list`, completion and a `snakemake` with nothing to do read the specs of all attacks, models
and figures, and compute nothing. A module with a spec and its computation imports such a library
from here, ``from gleak.core.lazy import torch``, and uses it in functions only. Hints are not
evaluated (``from __future__ import annotations``), so they name it as usual: ``torch.Tensor``.

What needs the library when it is defined, such as a subclass of ``torch.nn.Module``, is in a module
that imports it as usual, and is itself imported in the function that needs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import lazy_loader

if TYPE_CHECKING:
    import pandas
    import torch
else:
    pandas = lazy_loader.load("pandas")
    torch = lazy_loader.load("torch")

__all__ = ["pandas", "torch"]
