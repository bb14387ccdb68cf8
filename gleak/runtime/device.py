"""Device and CPU settings of a job."""

from __future__ import annotations

import ctypes

from gleak.core.errors import GleakError, nearest
from gleak.core.lazy import torch

DEVICES = ("auto", "cpu", "cuda")
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
"""Parameters of the GNU C library's mallopt(3)."""


def choose_device(wanted: str | torch.device) -> torch.device:
    """Return the device of a job.

    Args:
        wanted: "cpu", "cuda", "cuda:1", or "auto": a GPU if torch sees one.

    Raises:
        GleakError: unknown name, "cuda" without a GPU, or no GPU of this number.
    """
    kind, _, index = str(wanted).partition(":")
    if kind not in DEVICES or (index and not index.isdecimal()):
        raise GleakError(f"unknown device {str(wanted)!r}; {nearest(wanted, DEVICES)}")
    available = torch.cuda.is_available()
    if kind == "cuda" and not available:
        raise GleakError(
            f"device 'cuda': torch {torch.__version__} sees no GPU on this machine; "
            "use device 'cpu' or 'auto', or install a torch built for its driver"
        )
    if kind == "cuda" and index:
        count = torch.cuda.device_count()
        if int(index) >= count:
            raise GleakError(f"device {str(wanted)!r}: torch sees {count} GPUs, numbered from 0")
        return torch.device(kind, int(index))
    return torch.device("cuda" if available and kind != "cpu" else "cpu")


def free_memory(device: torch.device) -> int | None:
    """Return the free memory of a GPU in bytes, also of a virtual one; None for the CPU."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    if device.type == "meta":
        from gleak.runtime.virtual_gpu import VirtualGPU

        return VirtualGPU.free_memory()
    return None


def prepare_cpu(threads: int) -> None:
    """Set the number of CPU threads of torch, and keep freed memory for reuse.

    If freed memory is returned to the kernel in every layer, its pages are cleared again and again
    (a fifth of the CPU seconds of a gradient of VGG-16). C libraries without ``mallopt`` stay as
    they are. A trim threshold of -1 is unlimited; the largest that ``mallopt`` takes, 2 GiB, is
    less than searches on networks of many weights free in each iteration.
    """
    torch.set_num_threads(max(1, threads))
    adjust = getattr(ctypes.CDLL(None), "mallopt", None)
    if adjust is not None:
        adjust(M_MMAP_MAX, 0)
        adjust(M_TRIM_THRESHOLD, -1)
