from __future__ import annotations

import ctypes
import platform
import subprocess
import sys

import pytest
import torch

from gleak.core.errors import GleakError
from gleak.runtime.device import choose_device, prepare_cpu


@pytest.mark.parametrize(
    ("wanted", "gpu", "chosen"),
    [("auto", True, "cuda"), ("auto", False, "cpu"), ("cpu", True, "cpu"), ("cuda", True, "cuda")],
)
def test_the_device_follows_wish_and_machine(
    wanted: str, gpu: bool, chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    assert choose_device(wanted) == torch.device(chosen)


@pytest.mark.parametrize(
    ("wanted", "fault"),
    [
        ("cuda", "sees no GPU on this machine; use device 'cpu'"),
        ("gpuda", "unknown device 'gpuda'; did you mean 'cuda'"),
    ],
)
def test_a_device_that_there_is_not_is_reported(
    wanted: str, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(GleakError, match=fault):
        choose_device(wanted)


def test_threads_are_set_with_any_c_library(monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_num_threads()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    try:
        for threads in (2, 0):
            prepare_cpu(threads)
            assert torch.get_num_threads() == max(1, threads)
    finally:
        torch.set_num_threads(before)


NUMBERS = 16 * 2**20
FAULTS = """
import resource, torch
if {kept}:
    from gleak.runtime.device import prepare_cpu
    prepare_cpu(1)
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
