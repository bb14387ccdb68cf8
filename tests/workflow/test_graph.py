"""The graph of every study at every scale: it can be built, and no attack can reach the truth."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gleak.cell import LEVELS, Cell
from gleak.grid import SCALES

if TYPE_CHECKING:
    from tests.workflow.conftest import Job, Project

STUDIES = sorted((Path(__file__).parents[2] / "studies").glob("*.yaml"))
CELL = "results/artifacts/digits/lenet/untrained/honest/fedsgd/none"
Graph = Callable[[str, str], "list[Job]"]

each_study = pytest.mark.parametrize("study", [path.stem for path in STUDIES])
each_scale = pytest.mark.parametrize("scale", SCALES)


def check_attack(job: Job) -> None:
    """An attack reads the update, the broadcast parameters and its own grants; nothing else."""
    cell = Cell.from_path({level: job.wildcards[level] for level in LEVELS})
    inputs = job.files("input")
    assert not {path.name for path in inputs} & {"private.h5", "dataset.h5"}
    granted = {path.name for path in inputs if path.parent.name == "granted"}
    assert granted == {f"{grant}.h5" for grant in cell.attack.grants}
    others = {path.name for path in inputs if path.parent.name != "granted"}
    broadcast = "model.h5" if cell.crafting.broadcasts_model else "parameters.h5"
    assert others == {"update.h5", broadcast}


@each_study
@each_scale
def test_every_study_has_a_graph_and_no_attack_in_it_reaches_the_truth(
    graph: Graph, study: str, scale: str
) -> None:
    jobs = graph(study, scale)
    attacks = [job for job in jobs if job.attacks]
    assert attacks
    for job in attacks:
        check_attack(job)
    figures = {path.stem for job in jobs for path in job.files("output") if path.suffix == ".svg"}
    assert figures


@each_study
def test_every_job_has_a_log_and_a_benchmark_of_its_own(graph: Graph, study: str) -> None:
    jobs = [job for job in graph(study, "quick") if job.rule != "all"]
    for kind in ("log", "benchmark"):
        files = [path for job in jobs for path in job.files(kind)]
        assert len(set(files)) == len(jobs)


def test_no_share_of_a_cell_reaches_the_truth(planned: Project) -> None:
    jobs = planned.jobs(f"{CELL}/cpl/scores.csv", f"{CELL}/blind/scores.csv", shards=3)
    attacks = [job for job in jobs if job.rule == "attack_shard"]
    assert len(attacks) == 6
    for job in attacks:
        check_attack(job)


def test_what_is_granted_is_what_the_spec_asks_for(planned: Project) -> None:
    expected = {
        "cpl": [],
        "cpl+labels=known": [Path(CELL) / "granted/labels.h5"],
        "blind": [Path(CELL) / "granted/mean_input.h5"],
    }
    jobs = planned.jobs(*(f"{CELL}/{attack}/reconstruction.h5" for attack in expected))
    inputs = {job.wildcards["attack"]: job.files("input") for job in jobs if job.attacks}
    assert expected == {
        attack: [path for path in files if path.parent.name == "granted"]
        for attack, files in inputs.items()
    }
