"""Where the work runs."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from gleak.core.errors import GleakError, nearest

if TYPE_CHECKING:
    import torch

DEVICES = ("auto", "cpu", "cuda")

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
"""Parameters of the GNU C library's mallopt(3)."""


def choose_device(wanted: str) -> torch.device:
    """The device of a job.

    Args:
        wanted: "cpu", "cuda", or "auto": a GPU where torch sees one.

    Raises:
        GleakError: an unknown name, or no GPU where one is asked for.
    """
    import torch

    if wanted not in DEVICES:
        raise GleakError(f"unknown device {wanted!r}; {nearest(wanted, DEVICES)}")
    available = torch.cuda.is_available()
    if wanted == "cuda" and not available:
        raise GleakError(
            f"device 'cuda': torch {torch.__version__} sees no GPU on this machine; "
            "use device 'cpu' or 'auto', or install a torch built for its driver"
        )
    return torch.device("cuda" if available and wanted != "cpu" else "cpu")


def prepare_cpu(threads: int) -> None:
    """Let torch use as many CPU threads as the job was given, and keep the memory it frees.

    Large tensors come and go with every layer; given back to the kernel each time, their pages are
    cleared again and again (a fifth of the CPU seconds of a gradient of VGG-16).
    """
    import torch

    torch.set_num_threads(max(1, threads))
    keep_freed_memory()


def keep_freed_memory() -> None:
    """Tell the C library to reuse freed memory itself; it stays as it is where it cannot."""
    adjust = getattr(ctypes.CDLL(None), "mallopt", None)
    if adjust is not None:
        adjust(M_MMAP_MAX, 0)
        adjust(M_TRIM_THRESHOLD, 2**31 - 1)
