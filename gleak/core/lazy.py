"""torch and other large libraries, loaded when first used.

`gleak list`, completion and a `snakemake` with nothing to do read the specs of all attacks, models
and figures, and compute nothing. A module with a spec and its computation, and those that it
imports, import these libraries from here and use them in functions only. Hints are not evaluated
(``from __future__ import annotations``), so they name them as usual: ``torch.Tensor``.

What needs torch when it is defined, such as a subclass of ``torch.nn.Module``, is in a module that
imports torch as usual, and is itself imported in the function that needs it.

`importlib.util.LazyLoader`, which scientific-python's lazy_loader uses, would put a placeholder
into `sys.modules`: whatever walks through these (`inspect`, `scipy`) then loads torch.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any


class _Lazy(ModuleType):
    def __getattr__(self, name: str) -> Any:
        value = getattr(import_module(self.__name__), name)
        self.__dict__[name] = value
        return value


if TYPE_CHECKING:
    import h5py
    import matplotlib
    import pandas
    import scipy
    import seaborn
    import sklearn
    import torch
else:
    h5py = _Lazy("h5py")
    matplotlib = _Lazy("matplotlib")
    pandas = _Lazy("pandas")
    scipy = _Lazy("scipy")
    seaborn = _Lazy("seaborn")
    sklearn = _Lazy("sklearn")
    torch = _Lazy("torch")

__all__ = ["h5py", "matplotlib", "pandas", "scipy", "seaborn", "sklearn", "torch"]
