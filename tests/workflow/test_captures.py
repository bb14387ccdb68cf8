"""The graph of captured cells: who reads what."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.project import Job, Project

MODEL = "results/artifacts/digits/lenet/captured+capture={0}"
CELL = f"{MODEL}/honest/captured+victims=2+batch_size=2+capture={{0}}/none"
TOLD, BARE = map(CELL.format, ("told", "bare"))


def upstream(jobs: list[Job], job: Job) -> set[Path]:
    """All files that a job's inputs are made of, themselves included."""
    makers = {path: maker for maker in jobs for path in maker.files("output")}
    found: set[Path] = set()
    waiting = {*job.files("input")}
    while waiting:
        path = waiting.pop()
        found.add(path)
        if path in makers:
            waiting |= {*makers[path].files("input")} - found
    return found


def test_no_attack_on_captured_clients_reaches_their_truth(
    planned: Project, captures: Path
) -> None:
    attacks = [f"{TOLD}/{attack}/scores.csv" for attack in ("cpl", "dlg")]
    jobs = planned.jobs(*attacks, data_dir=captures)
    found = [job for job in jobs if job.attacks]
    assert len(found) == 2
    for job in found:
        reached = upstream(jobs, job)
        assert {captures / "captures/told" / f"{kind}.h5" for kind in ("model", "update")} < reached
        assert "private.h5" not in {path.name for path in reached}
    assert {job.rule for job in jobs} == {
        "prepare_dataset",
        "take_captured_model",
        "take_captured_update",
        "take_captured_truth",
        "attack",
        "score",
    }


def test_what_is_granted_comes_from_the_truth(planned: Project, captures: Path) -> None:
    jobs = planned.jobs(f"{TOLD}/cpl+labels=known/reconstruction.h5", data_dir=captures)
    (attack,) = (job for job in jobs if job.attacks)
    assert Path(TOLD) / "granted/labels.h5" in attack.files("input")
    (truth,) = (job for job in jobs if job.rule == "take_captured_truth")
    assert captures / "captures/told/private.h5" in truth.files("input")


def test_without_truth_there_is_a_reconstruction(planned: Project, captures: Path) -> None:
    jobs = planned.jobs(f"{BARE}/cpl/reconstruction.h5", data_dir=captures)
    assert {job.rule for job in jobs} >= {"attack", "take_captured_update"}
    assert "take_captured_truth" not in {job.rule for job in jobs}


def test_simulated_clients_and_audits_take_captured_parameters(
    planned: Project, captures: Path
) -> None:
    model = MODEL.format("bare")
    files = ("honest/fedsgd/none/cpl/scores.csv", "honest/scores.csv", "scores.csv")
    jobs = planned.jobs(*(f"{model}/{file}" for file in files), data_dir=captures)
    rules = [job.rule for job in jobs]
    assert rules.count("take_captured_model") == 1
    assert {"simulate_clients", "score_parameters", "score_model"} < {*rules}
    assert "train_model" not in rules
