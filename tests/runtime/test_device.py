from __future__ import annotations

import ctypes
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from inspect import getsource
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
import torch

import gleak
from gleak.core.errors import GleakError
from gleak.runtime import device as module
from gleak.runtime.device import choose_device, exact_kernels, free_memory, prepare_cpu
from gleak.studies.stages import STAGES

ROOT = Path(gleak.__file__).parent
OLD_DRIVER = "The NVIDIA driver on your system is too old (found version 11040).\n Update it."


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., None]]:
    """Let torch see some GPUs, or find a fault, and the machine show some."""
    monkeypatch.setattr(module, "NODES", tmp_path)

    def see(count: int = 1, fault: str = "", shown: int = 0) -> None:
        def init() -> None:
            if fault:
                raise RuntimeError(fault)

        monkeypatch.setattr(torch.cuda, "init", init)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        for number in range(shown):
            (tmp_path / f"nvidia{number}").touch()

    yield see
    module._warn_of_unused_gpu.cache_clear()


@pytest.mark.parametrize(
    ("wanted", "fault", "chosen"),
    [
        ("auto", "", "cuda"),
        ("auto", "no driver", "cpu"),
        ("cpu", "must not be asked", "cpu"),
        ("cuda", "", "cuda"),
        ("cuda:1", "", "cuda:1"),
    ],
)
def test_the_device_follows_wish_and_machine(
    wanted: str, fault: str, chosen: str, gpus: Callable[..., None]
) -> None:
    gpus(2, fault)
    assert choose_device(wanted) == choose_device(torch.device(chosen)) == torch.device(chosen)


def test_jobs_on_the_cpu_do_not_ask_for_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("init", "is_available", "device_count"):
        monkeypatch.setattr(torch.cuda, name, lambda: pytest.fail("CUDA was asked for"))
    assert choose_device("cpu").type == "cpu"


@pytest.mark.parametrize(
    ("wanted", "cuda", "fault"),
    [
        (
            "cuda",
            {"fault": "Found no NVIDIA driver"},
            "can use no GPU .* use device 'cpu' .* no NV",
        ),
        ("cuda:1", {"fault": OLD_DRIVER}, r"torch \S+ can .* too old .* Update it"),
        ("cuda:2", {"count": 2}, r"device 'cuda:2': .* numbered 0 to 1; .*CUDA_VISIBLE_DEVICES"),
        ("gpuda", {}, "unknown device 'gpuda'; did you mean 'cuda'"),
        ("cuda:x", {}, "unknown device 'cuda:x'"),
    ],
)
def test_a_device_that_there_is_not_is_reported(
    wanted: str, cuda: dict[str, Any], fault: str, gpus: Callable[..., None]
) -> None:
    gpus(**cuda)
    with pytest.raises(GleakError, match=fault):
        choose_device(wanted)


@pytest.mark.parametrize(("shown", "visible", "warned"), [(1, "0", 1), (0, "0", 0), (1, "", 0)])
def test_a_gpu_that_torch_cannot_use_is_reported_once_unless_it_is_hidden(
    shown: int,
    visible: str,
    warned: int,
    gpus: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    gpus(0, OLD_DRIVER, shown)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    for _ in range(3):
        assert choose_device("auto") == torch.device("cpu")
    assert caplog.text.count("too old (found version 11040)") == warned
    assert caplog.text.count(f"torch {torch.__version__} cannot use it") == warned


@pytest.mark.parametrize(("share", "free"), [(1.0, 65), (0.8, 59), (0.5, 35)])
def test_what_torch_keeps_of_freed_tensors_is_free(
    share: float, free: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 80 GB the driver has 10 left; tensors take 5 of the 60 that torch has claimed."""
    answers = {"mem_get_info": (10, 80), "memory_reserved": 60, "memory_allocated": 5}
    for name, answer in {**answers, "get_per_process_memory_fraction": share}.items():
        monkeypatch.setattr(torch.cuda, name, lambda device, answer=answer: answer)
    assert free_memory(torch.device("cuda")) == free
    assert free_memory(torch.device("cpu")) is None


def settings() -> list[Any]:
    """Of torch: those that decide on precision and kernels, by both interfaces."""
    backends, cudnn, onednn = torch.backends, torch.backends.cudnn, torch.backends.mkldnn
    own = cudnn.conv, cudnn.rnn, backends.cuda.matmul, onednn.conv, onednn.rnn, onednn.matmul
    found: list[Any] = [one.fp32_precision for one in (backends, cudnn, *own)]
    for read in (lambda: cudnn.allow_tf32, torch.get_float32_matmul_precision):
        try:
            found.append(read())
        except RuntimeError:
            found.append("both interfaces were used")
    return [*found, cudnn.deterministic, cudnn.benchmark]


EXACT = ["none", "none", *["ieee"] * 6, False, "highest", True, False]


def set_generic() -> None:
    torch.backends.fp32_precision = "tf32"


def set_convolutions() -> None:
    torch.backends.cudnn.conv.fp32_precision = "ieee"


def set_benchmark() -> None:
    torch.backends.cudnn.benchmark = True


@pytest.mark.usefixtures("torch_defaults")
@pytest.mark.parametrize(
    "own",
    [
        lambda: None,
        lambda: torch.set_float32_matmul_precision("medium"),
        set_generic,
        set_convolutions,
        set_benchmark,
    ],
)
def test_kernels_are_exact_in_a_block_whatever_was_set_and_then_as_before(
    own: Callable[[], None],
) -> None:
    own()
    before = settings()
    with exact_kernels():
        assert settings() == EXACT
        choose_device("cpu")
    assert settings() == before
    choose_device("cpu")
    assert settings() == EXACT


@pytest.mark.usefixtures("torch_defaults")
def test_kernels_are_exact_until_the_last_thread_has_finished() -> None:
    before, entered, left = settings(), Barrier(2), Barrier(2)

    def first() -> None:
        with exact_kernels():
            entered.wait()
        left.wait()

    def second() -> list[Any]:
        with exact_kernels():
            entered.wait()
            left.wait()
            return settings()

    with ThreadPoolExecutor(2) as pool:
        runs = pool.submit(first), pool.submit(second)
        assert runs[1].result() == EXACT
    assert settings() == before


SETTINGS = ("allow_tf32", "fp32_precision", "matmul_precision", "cudnn.flags", "deterministic =")


def test_one_module_alone_sets_kernels() -> None:
    """So whatever a job runs after `choose_device`, it stays exact."""
    setting = {
        path.relative_to(ROOT).as_posix()
        for path in ROOT.rglob("*.py")
        if any(name in path.read_text() for name in SETTINGS)
    }
    assert setting == {"runtime/device.py"}


@pytest.mark.parametrize("code", sorted({s.code for s in STAGES.values() if s.gpu}))
def test_stages_that_may_have_a_gpu_choose_their_device(code: str) -> None:
    """`observe` does so for attacks and searches."""
    source = getsource(import_module(code))
    assert "choose_device(" in source or "observation = observe(" in source


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
