from __future__ import annotations

import pytest
import torch

from gleak.errors import GleakError
from gleak.runtime.device import choose_device, set_threads


@pytest.mark.parametrize(
    ("wanted", "gpu", "chosen"),
    [("auto", True, "cuda"), ("auto", False, "cpu"), ("cpu", True, "cpu"), ("cuda", True, "cuda")],
)
def test_the_device_follows_wish_and_machine(
    wanted: str, gpu: bool, chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    assert choose_device(wanted) == torch.device(chosen)


def test_a_missing_gpu_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(GleakError, match="sees no GPU on this machine; use device 'cpu'"):
        choose_device("cuda")


def test_an_unknown_device_is_answered_with_the_nearest() -> None:
    with pytest.raises(GleakError, match="unknown device 'gpuda'; did you mean 'cuda'"):
        choose_device("gpuda")


def test_threads_are_set() -> None:
    before = torch.get_num_threads()
    try:
        set_threads(2)
        assert torch.get_num_threads() == 2
        set_threads(0)
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)
