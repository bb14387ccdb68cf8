"""Jobs killed repeatedly at random times resume with output identical to an uninterrupted run."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from gleak.artifacts.dataset import Dataset
from gleak.attacks.run_attack import attack
from gleak.core.errors import StoppedError
from gleak.core.registry import parse
from gleak.knowledge.train_knowledge import train_knowledge
from gleak.runtime import checkpointing
from gleak.training.train_model import train_model

Work = Callable[[Path], Path]
KILLS = 20
LONGEST = 0.3  # seconds from a run's first step to its end
SOON = 60.0
OUTPUTS = ("knowledge.h5", "model.h5", "reconstruction.h5")
JOBS = {
    "L-BFGS": "cpl+iterations=15+threshold=1e-30",
    "Adam": "invertgrad+iterations=300",
    "unmixing": "cpa+iterations=3000",
    "training": "central+batch_size=4+epochs=80",
    "federated training": "federated+clients=4+rounds=120+local_steps=2+defense=threshold",
    "knowledge": "tagger+steps=600+batch_size=4+width=4",
}


@pytest.fixture(scope="module")
def processes() -> object:
    """New processes that need not import torch."""
    context = get_context("forkserver")
    context.set_forkserver_preload([__name__, "torch._dynamo", "tqdm"])
    return context


@pytest.fixture
def work(name: str, images: Dataset, simulate: Callable[..., Path], tmp_path: Path) -> Work:
    """The job, given the folder that it works in; it gives its output."""
    images.write(tmp_path / "dataset.h5")
    model = "mlp+hidden=24" if name == "unmixing" else "lenet+width=4"
    size = 4 if name == "unmixing" else 1
    cell = simulate(model=model, client=f"fedsgd+batch_size={size}+victims=4")
    return partial(run_job, JOBS[name], model, tmp_path / "dataset.h5", cell)


def run_job(spec: str, model: str, dataset: Path, cell: Path, folder: Path) -> Path:
    options = {"seed": 3, "device": "cpu"}
    if spec.startswith("tagger"):
        output = folder / "knowledge.h5"
        train_knowledge(parse("knowledge", spec), dataset, output, **options)
    elif spec.startswith(("central", "federated")):
        output = folder / "model.h5"
        network, training = parse("model", model), parse("training", spec)
        train_model(network, training, dataset, output, **options)
    else:
        output = folder / "reconstruction.h5"
        files = (cell / "update.h5", cell / "model.h5", {})
        attack(parse("attack", spec), *files, output, **options)
    return output


def same_code(*_: str) -> str:
    """In place of the digest of all modules, which each new process would look for again."""
    return "code"


def run_often_written(work: Work, folder: Path, begun: Path) -> None:
    """In a process of its own: checkpoints at every step or so."""
    import torch

    torch.set_num_threads(1)
    checkpointing.SECONDS, checkpointing.COST = 0.02, 0.5
    checkpointing.source_digest = same_code
    step = checkpointing.Part.step
    checkpointing.Part.step = lambda part, state: (begun.touch(), step(part, state))[1]
    try:
        work(folder)
    except StoppedError:
        os._exit(signal.SIGTERM)


@pytest.mark.slow
@pytest.mark.usefixtures("random_weights")
@pytest.mark.parametrize("name", JOBS)
def test_a_job_survives_twenty_kills(
    name: str,
    work: Work,
    tmp_path: Path,
    processes: object,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(checkpointing, "source_digest", same_code)
    expected = work(tmp_path / "whole").read_bytes()
    dice, folder, killed, survived = random.Random(name), tmp_path / "killed", 0, 0
    folder.mkdir()
    while killed < KILLS:
        begun = tmp_path / f"begun-{killed}"
        process = processes.Process(target=run_often_written, args=(work, folder, begun))
        process.start()
        wait_for_step(begun, process)
        time.sleep(dice.uniform(0, LONGEST))
        with suppress(ProcessLookupError):
            os.kill(process.pid, dice.choice([signal.SIGTERM, signal.SIGKILL]))
        process.join(SOON)
        # -SIGTERM: it came before the job's first step or after the last, when nothing handles it
        assert process.exitcode in (0, signal.SIGTERM, -signal.SIGTERM, -signal.SIGKILL)
        killed += process.exitcode != 0
        survived += (folder / "checkpoint.h5").exists()
        names = {path.name for path in folder.iterdir() if not path.name.endswith(".partial")}
        assert names <= {"checkpoint.h5", *OUTPUTS}
        if process.exitcode == 0:
            (output,) = (path for path in folder.iterdir() if path.name in OUTPUTS)
            assert output.read_bytes() == expected
            output.unlink()
    assert survived
    assert work(folder).read_bytes() == expected
    assert [path.suffix for path in folder.iterdir()] == [".h5"]


def wait_for_step(begun: Path, process: BaseProcess) -> None:
    """Wait for a first step, or the end: a job killed after its last step resumes without one."""
    end = time.monotonic() + SOON
    while process.is_alive() and not begun.exists():
        assert time.monotonic() < end, "the process neither took a step nor ended"
        time.sleep(0.005)
