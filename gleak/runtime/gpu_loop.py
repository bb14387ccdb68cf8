"""Loops on a GPU that do not wait for it: CUDA graphs, rare looks, one copy to the host at a time.

An iteration of a search starts hundreds of kernels, each of which takes a GPU less time than the
host needs to start it. A CUDA graph starts them together; it needs a function that reads no values
and keeps its tensors where they are.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np

from gleak.core.lazy import torch

WARM_UP = 3
"""Calls of a function before it is captured, in which libraries and caches are set up."""
GPU_EVALUATIONS = 20
"""Evaluations of a search on a GPU between two looks of the host at its state."""
Capture = Callable[[Callable[[], None]], Callable[[], None]]
"""Function that captures a function, without running it, and returns one that replays it."""
log = logging.getLogger(__name__)


class GraphedCall:
    """Function that changes tensors in place, and is replayed as a graph after a few calls.

    If it cannot be captured, the reason is logged, and it is run as before.

    Args:
        function: without arguments and results; starts the same kernels on the same tensors in
            every call until `renew`.
        capture: see `graph_capture`; None: the function is always run.
    """

    def __init__(self, function: Callable[[], None], capture: Capture | None) -> None:
        self.function, self.capture = function, capture
        self.replay: Callable[[], None] | None = None
        self.calls = 0

    def __call__(self) -> None:
        if self.replay is None and self.capture is not None and self.calls >= WARM_UP:
            try:
                self.replay = self.capture(self.function)
            except RuntimeError as error:  # of CUDA, of its allocator too
                reason = str(error).partition("\n")[0]
                log.info("no CUDA graph, kernels are started one by one: %s", reason)
                self.capture = None
        if self.replay is None:
            self.calls += 1
            self.function()
        else:
            self.replay()

    def renew(self) -> None:
        """Capture the function again after some calls, as tensors have been replaced."""
        self.replay, self.calls = None, 0


def graph_capture(device: torch.device) -> Capture | None:
    """Return how functions are captured on a device; None where they are not."""
    return _cuda_graph if device.type == "cuda" else None


def _cuda_graph(function: Callable[[], None]) -> Callable[[], None]:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function()
    return graph.replay


def evaluations_between_looks(device: torch.device) -> int:
    """Return the evaluations of a search between two looks of the host, each of which waits."""
    return GPU_EVALUATIONS if device.type == "cuda" else 1


def on_host(*tensors: torch.Tensor) -> list[np.ndarray]:
    """Return copies of tensors on the host, by one copy from their device."""
    if tensors[0].device.type == "cpu":
        return [tensor.detach().clone().numpy() for tensor in tensors]
    flat = [tensor.detach().reshape(-1).view(torch.uint8) for tensor in tensors]
    packed = torch.cat(flat).cpu().numpy()
    copies, start = [], 0
    for tensor, values in zip(tensors, flat, strict=True):
        dtype = torch.empty(0, dtype=tensor.dtype).numpy().dtype
        end = start + len(values)
        copies.append(packed[start:end].view(dtype).reshape(tensor.shape))
        start = end
    return copies
