"""Functions are replayed as graphs after a few calls, and run where they cannot be captured."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from gleak.runtime.gpu_loop import (
    GPU_EVALUATIONS,
    WARM_UP,
    CUDAGraphs,
    GraphedCall,
    evaluations_between_reads,
    graphs_on,
    on_host,
)
from gleak.runtime.virtual_gpu import DEVICE, VirtualGPU
from tests.runtime.recorded_graph import RecordedGraphs


class Counter:
    """Adds a number that Python sees to a tensor, and counts how often it is run."""

    def __init__(self) -> None:
        self.sum = torch.zeros(3)
        self.runs, self.number = 0, 1.0

    def __call__(self) -> None:
        self.runs += 1
        self.sum += torch.full((3,), self.number)


def test_a_function_is_run_a_few_times_and_then_replayed():
    function = Counter()
    call = GraphedCall(RecordedGraphs())
    for number in range(1, WARM_UP + 4):
        call(function)
        assert function.sum.tolist() == [number] * 3
    assert function.runs == WARM_UP + 1, "the last time to be captured"
    function.number = 100.0
    call(function)
    assert function.sum[0] == WARM_UP + 4, "a replay does not see what Python sees"


def test_after_tensors_were_replaced_it_is_captured_again():
    function = Counter()
    call = GraphedCall(RecordedGraphs())
    for _ in range(WARM_UP + 2):
        call(function)
    function.sum = torch.zeros(2, 3)
    call.renew()
    for _ in range(WARM_UP + 2):
        call(function)
    assert (function.sum == WARM_UP + 2).all()
    assert function.runs == 2 * (WARM_UP + 1)


class Blind(RecordedGraphs):
    """Does not see before a capture that it will fail."""

    def watch(self, function: Callable[[], None]) -> str:
        function()
        return ""


@pytest.mark.parametrize(
    ("graphs", "told"),
    [(RecordedGraphs(), "it waits for"), (Blind(), "not permitted when stream is capturing")],
)
def test_a_function_that_reads_values_is_run_and_the_reason_is_logged(
    graphs: RecordedGraphs, told: str, caplog: pytest.LogCaptureFixture
):
    function = Counter()

    def reading() -> None:
        function()
        if function.sum[0].item() > 1e6:
            raise AssertionError

    call = GraphedCall(graphs)
    with caplog.at_level(logging.INFO):
        for _ in range(WARM_UP + 5):
            call(reading)
    assert function.sum[0] == WARM_UP + 5
    assert graphs.events == []
    (line,) = caplog.messages
    assert "no CUDA graph" in line
    assert told in line


@pytest.mark.parametrize(
    ("warning", "told"),
    [
        ("Synchronization debug mode does not yet detect all synchronizing operations", ""),
        ("called a synchronizing CUDA operation (function warn_or_error)", "it waits for the GPU"),
    ],
    ids=["about the debug mode, once in a process", "about an operation"],
)
def test_only_warnings_about_operations_are_reasons(
    monkeypatch: pytest.MonkeyPatch, warning: str, told: str
):
    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: 0)
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", lambda mode: None)
    reason = CUDAGraphs(torch.device("cuda")).watch(lambda: warnings.warn(warning, stacklevel=1))
    assert reason.startswith(told)
    assert bool(reason) == bool(told)


def test_errors_of_the_function_itself_are_raised():
    def broken() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        GraphedCall(RecordedGraphs())(broken)


@pytest.mark.parametrize("device", ["cpu", "meta", "cuda"])
def test_only_a_gpu_has_graphs_and_rare_looks(device: str):
    chosen = torch.device(device)
    is_gpu = device == "cuda"
    assert (graphs_on(chosen) is not None) == is_gpu
    assert evaluations_between_reads(chosen) == (GPU_EVALUATIONS if is_gpu else 1)


VALUES = [
    torch.tensor([[1.5, -2.0], [torch.inf, torch.nan]]),
    torch.tensor([True, False, True]),
    torch.tensor(7),
    torch.zeros(0, 3, dtype=torch.double),
    torch.arange(6, dtype=torch.double).view(2, 3).T,
]


def test_copies_on_the_host_equal_the_tensors_and_are_independent():
    copies = on_host(*VALUES)
    for copy, value in zip(copies, VALUES, strict=True):
        torch.testing.assert_close(
            torch.from_numpy(copy.copy()), value, rtol=0, atol=0, equal_nan=True
        )
    copies[1][:] = False
    assert VALUES[1][0]


def test_several_tensors_are_one_copy():
    def on_gpu(value: Tensor) -> Tensor:
        return torch.empty_like(value, device=DEVICE)

    with VirtualGPU(10**6) as gpu:
        tensors = [on_gpu(value) for value in VALUES]
        copies = on_host(*tensors)
        assert gpu.synchronisations == 1
    assert [copy.shape for copy in copies] == [tuple(value.shape) for value in VALUES]
