"""Where the work runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gleak.errors import GleakError, nearest

if TYPE_CHECKING:
    import torch

DEVICES = ("auto", "cpu", "cuda")


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


def set_threads(threads: int) -> None:
    """Let torch use as many CPU threads as the job was given."""
    import torch

    torch.set_num_threads(max(1, threads))
