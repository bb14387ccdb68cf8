"""torch and h5py, loaded when first used.

`gleak list`, completion and a `snakemake` with nothing to do read the specs of all attacks, models
and figures, and compute nothing. A module with a spec and its computation, and those that it
imports, import torch from here and use it in functions only; so do artifacts with h5py. Hints are
not evaluated (``from __future__ import annotations``), so they name it as usual: ``torch.Tensor``.

What needs torch when it is defined, such as a subclass of ``torch.nn.Module``, is in a module that
imports torch as usual, and is itself imported in the function that needs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import lazy_loader

if TYPE_CHECKING:
    import h5py
    import torch
else:
    h5py = lazy_loader.load("h5py")
    torch = lazy_loader.load("torch")

__all__ = ["h5py", "torch"]
