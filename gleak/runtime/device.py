"""Device, kernels and CPU settings of a job."""

from __future__ import annotations

import ctypes
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

from gleak.core.errors import GleakError, nearest
from gleak.core.lazy import torch

DEVICES = ("auto", "cpu", "cuda")
NODES, PATTERN = Path("/dev"), "nvidia[0-9]*"
"""Folder and names of the device files of GPUs on Linux."""
NO_GPU = ("", "-1", "NoDevFiles")
"""Values of CUDA_VISIBLE_DEVICES for jobs that shall use no GPU; the last is SLURM's."""
REMEDY = "install a driver and a torch that were made for each other"
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
"""Parameters of the GNU C library's mallopt(3)."""
_LOCK = Lock()
_BLOCKS: list[Callable[[], None]] = []
"""For each running block of `exact_kernels`, in all threads, what restores the earlier settings."""
log = logging.getLogger(__name__)


def choose_device(wanted: str | torch.device) -> torch.device:
    """Return the device of a job, and let the process compute with exact kernels from now on.

    Args:
        wanted: "cpu", "cuda", "cuda:1", or "auto": a GPU if torch can use one.

    Raises:
        GleakError: unknown name, "cuda" without a GPU that torch can use, or no GPU of this number.
    """
    kind, _, index = str(wanted).partition(":")
    if kind not in DEVICES or (index and not index.isdecimal()):
        raise GleakError(f"unknown device {str(wanted)!r}; {nearest(wanted, DEVICES)}")
    use_exact_kernels()
    fault = "" if kind == "cpu" else _start_cuda()
    if kind == "cuda" and fault:
        raise GleakError(
            f"device {str(wanted)!r}: torch {torch.__version__} can use no GPU of this machine; "
            f"use device 'cpu' or 'auto', or {REMEDY}; torch says: {fault}"
        )
    if kind == "cuda" and index:
        count = torch.cuda.device_count()
        if int(index) >= count:
            raise GleakError(
                f"device {str(wanted)!r}: the GPUs that torch sees are numbered 0 to {count - 1}; "
                "use one of them, or let it see more by CUDA_VISIBLE_DEVICES"
            )
        return torch.device(kind, int(index))
    if fault:
        _warn_of_unused_gpu(fault)
    return torch.device("cpu" if kind == "cpu" or fault else "cuda")


def _start_cuda() -> str:
    """Start CUDA, and return why torch cannot; empty if it can."""
    try:
        torch.cuda.init()
    except (AssertionError, RuntimeError, torch.cuda.DeferredCudaCallError) as error:
        return " ".join(str(error).split())
    return ""


@cache
def _warn_of_unused_gpu(fault: str) -> None:
    """Warn, once in a process, if the machine shows a GPU that torch cannot use."""
    if any(NODES.glob(PATTERN)) and os.environ.get("CUDA_VISIBLE_DEVICES") not in NO_GPU:
        log.warning(
            "device 'auto': this machine has a GPU, but torch %s cannot use it, so the CPU "
            "computes; %s, or choose device 'cpu'; torch says: %s",
            torch.__version__,
            REMEDY,
            fault,
        )


def device_name(device: torch.device) -> str:
    """Return "cpu", or the model of a GPU, on which the rounding of results depends."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def use_exact_kernels() -> Callable[[], None]:
    """Compute in single precision, and in every run alike, from now on.

    By default torch rounds the factors of convolutions on a GPU to the 10 bits of TF32, which puts
    the gradient distance at the true samples above the thresholds of searches. cuDNN's fastest
    kernels add in random order, and its benchmark can choose others in each run.

    torch has two interfaces for precision, and cannot read the older if it disagrees with the
    newer. Both are set; the older first, as it changes the newer.

    Returns:
        Function that restores the earlier settings.
    """
    backends: Any = torch.backends
    cudnn, onednn = backends.cudnn, backends.mkldnn
    operations = [cudnn.conv, cudnn.rnn, backends.cuda.matmul]
    operations += [onednn.conv, onednn.rnn, onednn.matmul]
    earlier = ExitStack()

    def keep(owner: Any, name: str) -> None:
        earlier.callback(setattr, owner, name, getattr(owner, name))

    keep(cudnn, "benchmark")
    keep(cudnn, "deterministic")
    for library in (backends, cudnn):
        keep(library, "fp32_precision")
        library.fp32_precision = "none"  # which operations without one would show as their own
    for operation in operations:
        keep(operation, "fp32_precision")
    with suppress(RuntimeError):
        keep(cudnn, "allow_tf32")
    with suppress(RuntimeError):
        precision = torch.get_float32_matmul_precision()
        earlier.callback(torch.set_float32_matmul_precision, precision)
    cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32 = False, True, False
    torch.set_float32_matmul_precision("highest")
    for operation in operations:
        operation.fp32_precision = "ieee"
    return earlier.close


@contextmanager
def exact_kernels() -> Iterator[None]:
    """Compute the block as `use_exact_kernels` says, in a process that has settings of its own.

    They are those of all threads: the last block to end restores what the first found.
    """
    with _LOCK:
        _BLOCKS.append(use_exact_kernels())
    try:
        yield
    finally:
        with _LOCK:
            restore = _BLOCKS.pop()
            if not _BLOCKS:
                restore()


def free_memory(device: torch.device) -> int | None:
    """Return the free memory of a GPU in bytes, also of a virtual one; None for the CPU.

    What torch keeps of freed tensors is free for this process, though not for the driver. A process
    with a share of the GPU has no more than that.
    """
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        allocated = torch.cuda.memory_allocated(device)
        share = int(torch.cuda.get_per_process_memory_fraction(device) * total)
        return min(free + torch.cuda.memory_reserved(device), share) - allocated
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
