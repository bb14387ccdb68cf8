"""Loops on a GPU that do not wait for it: CUDA graphs, and rare copies of the state to the host.

An iteration of a search starts hundreds of kernels, each of which takes a GPU less time than the
host needs to start it. A CUDA graph starts them together; it needs a function that reads no values
and keeps its tensors where they are.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Protocol

import numpy as np

from gleak.core.lazy import torch

WARM_UP = 3
"""Calls of a function before it is captured, in which libraries and caches are set up."""
WAITED = "called a synchronizing CUDA operation"
"""Warning of torch about an operation that waits; it has another one about its debug mode."""
GPU_EVALUATIONS = 20
"""Evaluations of a search on a GPU between two reads of its state by the host."""
Function = Callable[[], None]
log = logging.getLogger(__name__)


class Graphs(Protocol):
    """Capture of functions on a device."""

    def watch(self, function: Function) -> str:
        """Run a function, and return why it cannot be captured; empty if nothing is known."""

    def capture(self, function: Function) -> Function:
        """Capture a function without running it, and return one that replays it.

        Raises:
            RuntimeError: it cannot be captured.
        """


class GraphedCall:
    """Calls of a function that changes tensors in place, replayed as a graph after a few of them.

    If it cannot be captured, the reason is logged, and every call runs it.

    Args:
        graphs: see `graphs_on`; None: every call runs the function.
    """

    def __init__(self, graphs: Graphs | None) -> None:
        self.graphs = graphs
        self.replay: Function | None = None
        self.calls = 0

    def __call__(self, function: Function) -> None:
        """Run or replay a function, which starts the same kernels on the same tensors as before."""
        if self.replay is None and self.graphs is not None and self.calls == WARM_UP:
            try:
                self.replay = self.graphs.capture(function)
            except RuntimeError as error:  # of CUDA, of its allocator too
                self._decline(str(error))
        if self.replay is not None:
            self.replay()
            return
        self.calls += 1
        if self.graphs is None or self.calls < WARM_UP:
            function()
        elif reason := self.graphs.watch(function):
            self._decline(reason)

    def _decline(self, reason: str) -> None:
        self.graphs = None
        log.info("no CUDA graph, kernels are started one by one: %s", reason.partition("\n")[0])

    def renew(self) -> None:
        """Free the graph, before tensors are replaced by others; a new one follows after calls."""
        self.replay, self.calls = None, 0


class CUDAGraphs:
    """CUDA graphs on one GPU.

    A failed capture leaves torch's allocator in a state that it does not expect, so the last call
    before it is watched for operations that wait, and after a failure none is tried again.
    """

    failed = False

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def watch(self, function: Function) -> str:
        before = torch.cuda.get_sync_debug_mode()
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            try:
                function()
            finally:
                torch.cuda.set_sync_debug_mode(before)
        waits = [str(each.message) for each in told if WAITED in str(each.message)]
        return "it waits for the GPU: " + waits[0] if waits else ""

    def capture(self, function: Function) -> Function:
        if CUDAGraphs.failed:
            raise RuntimeError("an earlier capture failed")
        graph, pool = torch.cuda.CUDAGraph(), torch.cuda.graph_pool_handle()
        stream = _capture_stream(self.device)
        with torch.cuda.device(self.device), torch.cuda.stream(torch.cuda.current_stream()):
            try:
                with torch.cuda.graph(graph, pool=pool, stream=stream):
                    function()
            except torch.OutOfMemoryError:  # which ends a capture that is valid
                raise
            except RuntimeError:
                CUDAGraphs.failed = True
                with suppress(Exception):  # what a capture that is not valid leaves undone
                    torch._C._cuda_endAllocateToPool(torch.cuda.current_device(), pool)
                raise
        return graph.replay


@cache
def _capture_stream(device: torch.device) -> torch.cuda.Stream:
    """Return the stream of all captures on a GPU, since libraries keep a workspace for each."""
    return torch.cuda.Stream(device)


def graphs_on(device: torch.device) -> Graphs | None:
    """Return how functions are captured on a device; None where they are not."""
    return CUDAGraphs(device) if device.type == "cuda" else None


def evaluations_between_reads(device: torch.device) -> int:
    """Return the evaluations of a search between two reads of its state, each of which waits."""
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
