"""The GPU that a job computes on.

On one machine a job takes quarters of one of its GPUs, and as large a share of its memory. They are
locks on files, which end with the process that holds them, so that workflows side by side share the
GPUs and a killed job frees its own. A job of SLURM has the GPU that SLURM gave it.
"""

from __future__ import annotations

import fcntl
import logging
import os
import platform
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from gleak.core.errors import GleakError
from gleak.core.lazy import torch

QUARTERS = 4
VISIBLE = "CUDA_VISIBLE_DEVICES"
GIVEN = ("SLURM_JOB_GPUS", "SLURM_STEP_GPUS", "SLURM_GPUS_ON_NODE")
"""Variables that SLURM sets in a job with a GPU: identifiers, or their number."""
POLL_SECONDS = 1.0
ANSWER_SECONDS = 60
log = logging.getLogger(__name__)


def visible_gpus() -> list[str]:
    """Return the GPUs of this machine, named as in CUDA_VISIBLE_DEVICES, without starting CUDA.

    They are those in this variable or, where it is not set, those that ``nvidia-smi`` lists; none
    in a job of SLURM that was given none.
    """
    if (visible := os.environ.get(VISIBLE)) is not None:
        names = (name.strip() for name in visible.split(","))  # CUDA, too, stops at an invalid one
        return list(dict.fromkeys(takewhile(re.compile(r"\d+|(GPU|MIG)-.+").fullmatch, names)))
    if _in_slurm_without_gpu() or (program := shutil.which("nvidia-smi")) is None:
        return []
    command = [program, "-L"]
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, timeout=ANSWER_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        said = " ".join((getattr(error, "stdout", None) or "").split())
        log.warning("no GPU is used, as nvidia-smi fails: %s", said or error)
        return []
    listed = [line for line in answer.stdout.splitlines() if line.startswith("GPU ")]
    return [str(number) for number in range(len(listed))]


@contextmanager
def assigned(resources: Any, device: str) -> Iterator[str]:
    """Yield the device of a job, of whose GPUs torch sees in the block what the job was given.

    Args:
        resources: Snakemake's, of the job: ``gpu`` or ``gres`` ask for a GPU, ``gpu_quarters`` for
            a share of one of this machine, which is held during the block.
        device: "cpu"; "cuda" or "auto", which a job without a GPU replaces by "cpu".

    Raises:
        GleakError: the job was given a GPU, but torch sees none.
    """
    quarters, gpus = resources.get("gpu_quarters"), resources.get("gpu")
    listed = "gpu" in str(resources.get("gres", ""))
    asked = gpus or listed
    if device == "cpu" or (gpus is None and not listed):
        yield "cpu"
    elif gpus is None:
        yield device
    elif quarters is None and _is_given():
        _check_seen(torch.cuda.is_available())
        yield device
    elif not asked or quarters == 0 or (device == "auto" and _in_slurm_without_gpu()):
        yield "cpu"
    elif quarters is None:
        yield device
    else:
        visible = visible_gpus()
        _check_seen(bool(visible))
        share = _take(visible, quarters)
        os.environ[VISIBLE] = share.gpu
        log.info("computes on GPU %s, with %d quarters of it", share.gpu, quarters)
        try:
            _check_seen(torch.cuda.is_available())
            torch.cuda.set_per_process_memory_fraction(len(share.held) / QUARTERS)
            yield device
        finally:
            share.keep(0)


def _is_given() -> bool:
    *identifiers, number = (os.environ.get(name, "") for name in GIVEN)
    return any(identifiers) or number not in ("", "0")


def _in_slurm_without_gpu() -> bool:
    return "SLURM_JOB_ID" in os.environ and not _is_given()


def _check_seen(seen: bool) -> None:
    if seen:
        return
    facts = [f"{name}={os.environ[name]}" for name in (*GIVEN, VISIBLE) if name in os.environ]
    built = f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPUs only"
    raise GleakError(
        f"{platform.node()}: this job was given a GPU ({', '.join(facts)}), but torch "
        f"{torch.__version__}, built for {built}, sees none; install a torch built for the driver "
        "of this machine (nvidia-smi shows its CUDA version), or set device to cpu"
    )


@dataclass
class _Share:
    """Quarters of a GPU that this process holds, by the file descriptors of their locks.

    Args:
        gpu: name of the GPU.
        claim: lock that keeps other processes from taking quarters of this GPU.
        held: locks of the quarters.
    """

    gpu: str
    claim: int
    held: list[int]

    def keep(self, most: int) -> None:
        """Free the quarters in excess of this number."""
        while len(self.held) > most:
            os.close(self.held.pop())


def _take(gpus: Sequence[str], quarters: int) -> _Share:
    """Take quarters of the GPU of which most are free; wait until there are enough.

    A job that waits holds those that are free, so that smaller jobs do not overtake it for ever.
    """
    folder = Path(tempfile.gettempdir()) / "-".join(
        ["gleak-gpus", str(os.getuid()), *filter(None, [os.environ.get("SLURM_JOB_ID")])]
    )
    quarters = min(quarters, QUARTERS)
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        while (share := _most_free(folder, gpus, quarters)) is None:
            time.sleep(POLL_SECONDS)
        if len(share.held) < quarters:
            log.info("waits until GPU %s is free", share.gpu)
            while missing := quarters - len(share.held):
                time.sleep(POLL_SECONDS)
                share.held += _free_quarters(folder, share.gpu, missing)
            os.close(share.claim)
    except OSError as error:
        raise GleakError(
            f"{folder}: cannot be used for the locks of GPUs ({error}); set TMPDIR to a folder of "
            "this machine that you may write to"
        ) from None
    return share


def _most_free(folder: Path, gpus: Sequence[str], quarters: int) -> _Share | None:
    """Return free quarters of the GPU with most of them, of those for which no job waits.

    If they are fewer than wanted, the claim to the GPU is held, too.
    """
    with (folder / "choosing").open("w") as choosing:
        fcntl.flock(choosing, fcntl.LOCK_EX)
        offers = [
            _Share(gpu, claim, _free_quarters(folder, gpu, QUARTERS))
            for gpu in gpus
            if (claim := _lock(_path(folder, gpu, "claim"))) is not None
        ]
        best = max(offers, key=lambda offer: len(offer.held), default=None)
        for offer in offers:
            offer.keep(quarters if offer is best else 0)
            if len(offer.held) in (0, quarters):
                os.close(offer.claim)
    return best if best and best.held else None


def _free_quarters(folder: Path, gpu: str, most: int) -> list[int]:
    """Lock quarters of a GPU that no process holds."""
    free: list[int] = []
    for number in range(QUARTERS):
        if len(free) < most and (lock := _lock(_path(folder, gpu, str(number)))) is not None:
            free.append(lock)
    return free


def _path(folder: Path, gpu: str, part: str) -> Path:
    return folder / f"{gpu.replace('/', '_')}.{part}"


def _lock(path: Path) -> int | None:
    """Return the descriptor of a locked file, None if the lock is held already."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor
