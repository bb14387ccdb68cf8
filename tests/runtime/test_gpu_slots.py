from __future__ import annotations

import os
import platform
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from gleak.core.errors import GleakError
from gleak.runtime import gpu_slots
from gleak.runtime.gpu_slots import GIVEN, QUARTERS, VISIBLE, assigned, visible_gpus
from gleak.runtime.job import job

SOON = 60
TWO = "GPU 0: A (UUID: GPU-1)\n  MIG 1g.5gb Device 0: (UUID: MIG-2)\nGPU 1: A (UUID: GPU-3)\n"


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither GPUs nor SLURM, and no programs; locks of this test alone."""
    for name in (*GIVEN, VISIBLE, "SLURM_JOB_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def stand_in(folder: Path, text: str, status: int = 0) -> None:
    """An nvidia-smi that says this."""
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\nprintf %s '{text}'\nexit {status}\n")
    program.chmod(0o755)


def torch_sees(gpus: bool, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Say whether torch sees GPUs; returns the shares of memory that it is told to use."""
    shares: list[float] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus)
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", shares.append)
    return shares


@pytest.mark.parametrize(
    ("listed", "found"),
    [
        ("2, 3", ["2", "3"]),
        ("GPU-8f3e,MIG-GPU-8f3e/1/0", ["GPU-8f3e", "MIG-GPU-8f3e/1/0"]),
        ("1,1", ["1"]),
        ("0,-1,1", ["0"]),
        ("NoDevFiles", []),
        ("", []),
    ],
)
def test_gpus_are_those_that_are_visible_to_cuda(
    listed: str, found: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, TWO)
    monkeypatch.setenv(VISIBLE, listed)
    assert visible_gpus() == found


def test_else_they_are_counted_by_nvidia_smi_if_it_exists(tmp_path: Path) -> None:
    assert visible_gpus() == []
    stand_in(tmp_path, TWO)
    assert visible_gpus() == ["0", "1"]


def test_a_driver_that_fails_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    stand_in(tmp_path, "NVIDIA-SMI has failed because\nit could not", 9)
    assert visible_gpus() == []
    assert "nvidia-smi fails: NVIDIA-SMI has failed because it could not" in caplog.text


class Waiting:
    """In place of `time`: tells the test once that a process waits, and sleeps briefly."""

    def __init__(self, told: Connection) -> None:
        self.told, self.silent = told, False

    def sleep(self, seconds: float) -> None:
        if not self.silent:
            self.told.send("waits")
        self.silent = True
        self.told.poll(0.01)


def hold(quarters: int, folder: str, told: Connection) -> None:
    """Take a share, tell of which GPU, and hold it until this process ends."""
    tempfile.tempdir = folder
    gpu_slots.time = Waiting(told)
    share = gpu_slots._take(["0", "1"], quarters)
    told.send(share.gpu)
    told.poll(None)


@dataclass
class Holder:
    """A process that takes quarters of one of two GPUs, and keeps them until it is killed."""

    process: BaseProcess
    told: Connection

    def says(self) -> str:
        assert self.told.poll(SOON)
        return self.told.recv()


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[Callable[[int], Holder]]:
    """Start such a process."""
    context = get_context("forkserver")
    context.set_forkserver_preload([__name__])
    with ExitStack() as ended:

        def start(quarters: int) -> Holder:
            here, there = context.Pipe()
            process = context.Process(target=hold, args=(quarters, str(tmp_path), there))
            process.start()
            ended.callback(process.join)
            ended.callback(process.kill)
            return Holder(process, here)

        yield start


def test_whole_gpus_are_not_shared_and_one_of_a_killed_job_is_free(
    holder: Callable[[int], Holder],
) -> None:
    first, second = holder(QUARTERS), holder(QUARTERS)
    gpus = [first.says(), second.says()]
    assert sorted(gpus) == ["0", "1"]
    third = holder(1)
    assert third.says() == "waits"
    second.process.kill()
    assert third.says() == gpus[1]


def test_small_jobs_are_spread_and_share(holder: Callable[[int], Holder]) -> None:
    small = [holder(1) for _ in range(2 * QUARTERS)]
    assert Counter(each.says() for each in small) == {"0": QUARTERS, "1": QUARTERS}


def test_small_jobs_do_not_overtake_a_large_one(holder: Callable[[int], Holder]) -> None:
    small = {(each := holder(1)).says(): each for _ in range(2)}
    large = holder(QUARTERS)
    assert large.says() == "waits"
    later = [holder(1) for _ in range(QUARTERS)]
    said = Counter(each.says() for each in later)
    (other,) = set(said) - {"waits"}
    assert said == {other: QUARTERS - 1, "waits": 1}
    (awaited,) = set(small) - {other}
    small[awaited].process.kill()
    assert large.says() == awaited


@pytest.mark.parametrize("device", ["auto", "cuda"])
@pytest.mark.parametrize(
    ("resources", "slurm", "given"),
    [
        ({}, {}, False),
        ({"gres": "gpu:1"}, {}, True),
        ({"gpu": 1}, {}, True),
        ({"gpu": 0}, {}, False),
        ({"gpu": 0, "gres": "gpu:1"}, {}, True),
        ({"gpu": 1, "gpu_quarters": 0}, {}, False),
        ({"gpu": 0}, {"SLURM_JOB_ID": "7"}, False),
        ({"gpu": 1}, {"SLURM_JOB_ID": "7", "SLURM_JOB_GPUS": "0"}, True),
        ({"gpu": 0}, {"SLURM_JOB_ID": "7", "SLURM_GPUS_ON_NODE": "2"}, True),
        ({"gpu": 0}, {"SLURM_JOB_ID": "7", "SLURM_GPUS_ON_NODE": "0"}, False),
    ],
)
def test_a_job_computes_on_a_gpu_if_it_was_given_one(
    device: str,
    resources: dict[str, Any],
    slurm: dict[str, str],
    given: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch_sees(True, monkeypatch)
    for name, value in slurm.items():
        monkeypatch.setenv(name, value)
    with assigned(resources, device) as chosen:
        assert chosen == (device if given else "cpu")
    with assigned(resources, "cpu") as chosen:
        assert chosen == "cpu"
    assert VISIBLE not in os.environ


def test_in_slurm_a_gpu_that_was_not_given_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, TWO)
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert visible_gpus() == []
    with assigned({"gpu": 1}, "auto") as chosen:
        assert chosen == "cpu"


def test_a_job_sees_the_gpu_alone_of_which_it_holds_quarters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shares = torch_sees(True, monkeypatch)
    monkeypatch.setenv(VISIBLE, "2,GPU-a/b")
    wanted = {"gpu": 1, "gpu_quarters": QUARTERS}
    with assigned(wanted, "auto") as device:
        assert (device, os.environ[VISIBLE]) == ("auto", "2")
        os.environ[VISIBLE] = "2,GPU-a/b"
        with assigned(wanted, "auto"):
            assert os.environ[VISIBLE] == "GPU-a/b"
    os.environ[VISIBLE] = "2,GPU-a/b"
    with assigned({**wanted, "gpu_quarters": 1}, "auto"):
        assert os.environ[VISIBLE] == "2"
    assert shares == [1, 1, 1 / QUARTERS]


@pytest.mark.parametrize(
    ("resources", "variables"),
    [
        ({"gpu": 1}, {"SLURM_JOB_ID": "7", "SLURM_JOB_GPUS": "3", VISIBLE: "0"}),
        ({"gpu": 1, "gpu_quarters": 1}, {VISIBLE: "3"}),
        ({"gpu": 1, "gpu_quarters": 1}, {VISIBLE: ""}),
    ],
)
def test_a_gpu_that_torch_does_not_see_is_an_error_before_the_work(
    resources: dict[str, Any],
    variables: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch_sees(False, monkeypatch)
    monkeypatch.setattr(torch.version, "cuda", None)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    log = tmp_path / "job.log"
    stage = SimpleNamespace(
        threads=1, log=[log], resources=resources, config={"device": "auto", "results_dir": "none"}
    )
    worked = False
    with pytest.raises(SystemExit), job(stage, tmp_path):
        worked = True
    assert not worked
    said = log.read_text()
    assert f"{platform.node()}: this job was given a GPU" in said
    for name, value in variables.items():
        assert f"{name}={value}" in said or name == "SLURM_JOB_ID"
    assert f"torch {torch.__version__}, built for CPUs only, sees none; install" in said
    assert "Traceback" not in said


def test_a_job_that_is_given_none_computes_on_the_cpu(tmp_path: Path) -> None:
    config = {"device": "auto", "results_dir": "none"}
    resources = {"gpu": 0, "gpu_quarters": 0}
    stage = SimpleNamespace(threads=1, log=[tmp_path / "log"], resources=resources, config=config)
    with job(stage, tmp_path):
        assert config["device"] == "cpu"


def test_a_folder_that_takes_no_locks_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    monkeypatch.setenv(VISIBLE, "0")
    with pytest.raises(GleakError, match=r"locks of GPUs .*; set TMPDIR"):
        assigned({"gpu": 1, "gpu_quarters": 1}, "auto").__enter__()
