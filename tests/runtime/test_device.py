from __future__ import annotations

import ctypes
import platform
import subprocess
import sys

import pytest
import torch

from gleak.core.errors import GleakError
from gleak.runtime.device import choose_device, keep_freed_memory, prepare_cpu


@pytest.mark.parametrize(
    ("wanted", "gpu", "chosen"),
    [("auto", True, "cuda"), ("auto", False, "cpu"), ("cpu", True, "cpu"), ("cuda", True, "cuda")],
)
def test_the_device_follows_wish_and_machine(
    wanted: str, gpu: bool, chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    assert choose_device(wanted) == torch.device(chosen)


def test_a_missing_gpu_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(GleakError, match="sees no GPU on this machine; use device 'cpu'"):
        choose_device("cuda")


def test_an_unknown_device_is_answered_with_the_nearest() -> None:
    with pytest.raises(GleakError, match="unknown device 'gpuda'; did you mean 'cuda'"):
        choose_device("gpuda")


def test_threads_are_set() -> None:
    before = torch.get_num_threads()
    try:
        prepare_cpu(2)
        assert torch.get_num_threads() == 2
        prepare_cpu(0)
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


NUMBERS = 16 * 2**20
FAULTS = """
import resource, torch
if {kept}:
    from gleak.runtime.device import keep_freed_memory
    keep_freed_memory()
for _ in range(5):
    torch.ones({side})
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    torch.ones({side})
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries stay as they are")
@pytest.mark.slow
def test_freed_memory_is_used_again() -> None:
    """Pages of large tensors are claimed once, not at every allocation."""
    faults = {}
    for kept in (True, False):
        code = FAULTS.format(kept=kept, side=NUMBERS)
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        faults[kept] = int(done.stdout)
    assert faults[True] < faults[False] / 4


def test_a_c_library_that_cannot_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    keep_freed_memory()
