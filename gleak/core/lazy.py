"""torch and other large libraries, loaded when first used.

`gleak list`, completion and a `snakemake` with nothing to do read all specs and compute nothing. So
modules with specs, and those that they import, import these libraries from here and use them in
functions and hints (``torch.Tensor``) only. What needs torch when it is defined, such as a subclass
of ``torch.nn.Module``, is in a module that is itself imported in the function that needs it.

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
    import h5py as h5py
    import matplotlib as matplotlib
    import pandas as pandas
    import scipy as scipy
    import seaborn as seaborn
    import sklearn as sklearn
    import torch as torch
    from PIL import Image as Image
    from PIL import ImageOps as ImageOps
else:
    Image = _Lazy("PIL.Image")
    ImageOps = _Lazy("PIL.ImageOps")
    h5py = _Lazy("h5py")
    matplotlib = _Lazy("matplotlib")
    pandas = _Lazy("pandas")
    scipy = _Lazy("scipy")
    seaborn = _Lazy("seaborn")
    sklearn = _Lazy("sklearn")
    torch = _Lazy("torch")
