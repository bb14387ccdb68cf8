"""Which jobs get a GPU, and which one: on this machine and in what SLURM is asked for."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gleak.runtime.gpu_slots import GIVEN, QUARTERS, VISIBLE
from tests.project import NOTHING

if TYPE_CHECKING:
    from tests.project import Job, Project

SENT = "photos/lenet/untrained/honest/fedsgd+victims=64/none"
TRAINED = "photos/lenet/central+epochs=2/honest/fedsgd/none"
LARGE = SENT.replace("lenet", "resnet18")
TARGETS = [
    *(f"results/artifacts/{SENT}/{attack}/scores.csv" for attack in ("cpl", "dlg+iterations=1")),
    *(f"results/artifacts/{LARGE}/{attack}/scores.csv" for attack in ("invertgrad", "blind")),
]
SMI = "#!/bin/sh\necho 'GPU 0: A (UUID: GPU-1)'; echo 'GPU 1: A (UUID: GPU-2)'\n"
SLURM = ("--workflow-profile", "profiles/slurm")
Asked = dict[tuple[str, str], tuple[str | None, str | None]]


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """No GPU and no SLURM."""
    for name in (*GIVEN, VISIBLE, "SLURM_JOB_ID"):
        monkeypatch.delenv(name, raising=False)


def resources(job: Job) -> dict[str, str]:
    return dict(re.findall(r"(\w+)=([^,]+)", job.lines["resources"]))


def asked(project: Project, *options: str, **config: str) -> Asked:
    """By rule and attack, the GPUs and the quarters of one that jobs ask for, if they can."""
    found = {}
    for job in project.jobs(*TARGETS, *options, **config):
        wanted = resources(job)
        key = job.rule, job.wildcards.get("attack", "")
        found[key] = wanted.get("gpu"), wanted.get("gpu_quarters")
    return found


def with_gpus(project: Project, gpus: str) -> Project:
    return replace(project, environment={VISIBLE: gpus})


EVERY = {
    ("attack", "cpl"): ("1", "1"),
    ("attack", "dlg+iterations=1"): ("0", "0"),
    ("attack", "invertgrad"): ("1", "4"),
    ("attack", "blind"): ("0", "0"),
    ("train_model", ""): ("0", "0"),
    ("simulate_clients", ""): ("0", "0"),
    ("prepare_dataset", ""): (None, None),
}


def without_quarters(found: Asked) -> Asked:
    return {key: (gpu, None) for key, (gpu, _) in found.items()}


def test_jobs_ask_for_as_much_of_a_gpu_as_their_attack_and_work_warrant(planned: Project) -> None:
    assert EVERY.items() <= asked(with_gpus(planned, "0,1"), device="auto").items()


def test_gpus_are_counted_by_nvidia_smi(planned: Project, tmp_path: Path) -> None:
    (tmp_path / "nvidia-smi").write_text(SMI)
    (tmp_path / "nvidia-smi").chmod(0o755)
    path = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
    planned = replace(planned, environment={"PATH": path})
    assert EVERY.items() <= asked(planned, device="auto").items()


@pytest.mark.parametrize("gpus", ["", None])
def test_without_gpus_nothing_is_shared_out(planned: Project, gpus: str | None) -> None:
    if gpus is not None:
        planned = with_gpus(planned, gpus)
    assert without_quarters(EVERY).items() <= asked(planned, device="auto").items()


def test_the_device_decides_for_all_jobs(planned: Project) -> None:
    planned = with_gpus(planned, "0")
    assert set(asked(planned, device="cpu").values()) == {(None, None)}
    always = asked(planned, device="cuda")
    assert always["attack", "blind"] == ("0", "0")
    assert always["attack", "dlg+iterations=1"] == ("1", "1")
    assert always["train_model", ""] == ("1", "1")


def test_slurm_is_asked_for_whole_gpus(planned: Project) -> None:
    found = asked(planned, *SLURM, device="auto")
    assert without_quarters(EVERY).items() <= found.items()
    found = asked(planned, *SLURM, "--set-resources", "attack:gpu=0", "attack:gres='gpu:1'")
    assert {gpu for (rule, _), (gpu, _) in found.items() if rule == "attack"} == {"0"}


def test_a_share_of_a_cell_asks_by_its_own_work(planned: Project) -> None:
    (target, *_) = TARGETS
    for shards, gpus in ((2, {"1"}), (64, {"0"})):
        jobs = planned.jobs(target, device="auto", shards=shards)
        shares = [job for job in jobs if job.rule == "attack_shard"]
        assert len(shares) == shards
        assert {resources(job)["gpu"] for job in shares} == gpus


@pytest.fixture
def computing(project: Project) -> Project:
    """A copy whose torch says that it sees a GPU, with two of them, and computes on the CPU."""
    slots = project.root / "gleak/runtime/gpu_slots.py"
    text = slots.read_text().replace("torch.cuda.is_available()", "True")
    slots.write_text(text.replace("torch.cuda.set_per_process_memory_fraction", "float"))
    return replace(with_gpus(project, "5,7"), options=("--cores", "2"))


def logs(project: Project) -> dict[str, str]:
    """By rule, what its jobs logged."""
    return {path.stem: path.read_text() for path in (project.results / "logs").rglob("*.log")}


def test_jobs_share_the_gpus_up_to_the_limit_and_another_number_of_gpus_reruns_nothing(
    computing: Project,
) -> None:
    computing = replace(computing, config={**computing.config, "device": "auto"})
    update = computing.run(computing.cell / "update.h5")
    assert re.search(rf"Provided resources: gpu_quarters=.*\b{2 * QUARTERS}\b", update.text)
    assert not [text for text in logs(computing).values() if "computes on GPU" in text]
    target = computing.cell / "dlg+iterations=1/reconstruction.h5"
    whole = ("--set-resources", "attack:gpu=1", f"attack:gpu_quarters={QUARTERS}")
    attack = computing.run(target, *whole, "--resources", "gpu_quarters=3")
    assert re.search(r"Provided resources: gpu_quarters=.*\b3\b", attack.text)
    assert re.search("computes on GPU [57], with 3 quarters of it", logs(computing)["attack"])
    for gpus in ("", "0", "0,1,2"):
        assert NOTHING in with_gpus(computing, gpus).run("--dry-run", target).text


def test_a_gpu_that_torch_does_not_see_stops_the_job_by_name(project: Project) -> None:
    target = project.cell / "dlg+iterations=1/reconstruction.h5"
    result = with_gpus(project, "5").snakemake(target, device="cuda")
    assert result.code == 1
    assert f"this job was given a GPU ({VISIBLE}=5), but torch" in logs(project)["train_model"]
    assert "or set device to cpu" in result.text
