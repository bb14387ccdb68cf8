"""Jobs of a cluster: light ones travel in batches, and a node reads no study but its own."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.project import CELL, Result

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.project import Project

SLURM = ("--workflow-profile", "profiles/slurm", "--dry-run")
MINUTES = 10
LOCAL = {"all", "draw", "draw_table", "judge", "score_model", "tabulate"}
HEAVY = "cpl+iterations=1000000"
LEVELS = ("dataset", "model", "training", "crafting", "client", "defense", "attack")
"""Of the paths of cells, as a node is told them."""


@pytest.fixture(scope="module")
def submitted(planned: Project) -> Result:
    """What would be submitted for the tiny study and two more attacks, one of them heavy."""
    cells = [f"results/artifacts/{CELL}/{name}/scores.csv" for name in (HEAVY, "cpl+iterations=9")]
    return planned.run(*SLURM, "all", *cells, studies="tiny")


def test_each_light_job_is_in_the_batch_of_its_stage(submitted: Result) -> None:
    found = {batch.name: Counter(job.rule for job in batch.jobs) for batch in submitted.batches}
    assert found == {
        "data": {"prepare_dataset": 1, "train_model": 2},
        "clients": {"craft_parameters": 1, "score_parameters": 2, "simulate_clients": 1},
        "cells": {"attack": 4, "score": 4, "score_truth": 1},
    }


def test_a_heavy_attack_and_its_scores_travel_alone_and_the_rest_is_local(
    submitted: Result,
) -> None:
    batched = [job.lines["jobid"] for batch in submitted.batches for job in batch.jobs]
    alone = [job for job in submitted.jobs if job.lines["jobid"] not in batched]
    heavy = [job for job in alone if job.rule not in LOCAL]
    assert sorted(job.rule for job in heavy) == ["attack", "score"]
    assert {job.wildcards["attack"] for job in heavy} == {HEAVY}


def test_the_time_limit_of_a_light_job_is_short(submitted: Result) -> None:
    jobs = [job for batch in submitted.batches for job in batch.jobs]
    assert all(f"runtime={MINUTES}" in job.lines["resources"] for job in jobs)
    (heavy,) = (job for job in submitted.jobs if job.attacks and job.wildcards["attack"] == HEAVY)
    assert "runtime=240" in heavy.lines["resources"]


def test_batches_have_at_most_the_number_of_components_of_the_profile(planned: Project) -> None:
    result = planned.run("--group-components", "cells=2", *SLURM, studies="tiny")
    cells = [batch for batch in result.batches if batch.name == "cells"]
    assert sorted(len(batch.jobs) for batch in cells) in ([3, 4], [2, 2, 3])
    assert {batch.name for batch in result.batches} == {"cells"}


def test_one_machine_has_no_batches(planned: Project) -> None:
    assert planned.run("--dry-run", studies="tiny").batches == []


@pytest.fixture
def asked(planned: Project) -> Iterator[None]:
    """The metrics that studies need, as the machine that submits has written them for nodes."""
    planned.results.mkdir()
    needed = {f"{CELL}/cpl+iterations=20": ["ssim+window=global"]}
    (planned.results / "asked_metrics.json").write_text(json.dumps(needed))
    yield
    shutil.rmtree(planned.results)


@pytest.mark.usefixtures("asked")
@pytest.mark.parametrize("target", ["attack", "score", "draw_table"])
def test_a_node_reads_no_study_but_that_of_its_job(planned: Project, target: str) -> None:
    """One that is configured does not exist, which the machine that submits would refuse."""
    wildcards = dict(zip(LEVELS, f"{CELL}/cpl+iterations=20".split("/"), strict=True))
    if target == "draw_table":
        wildcards = {"study": "tiny", "scale": "quick", "figure": "errors"}
    spec = f"{target}:{','.join(f'{name}={value}' for name, value in wildcards.items())}"
    words = ("--dry-run", "--target-jobs", spec, "--allowed-rules", target, "--force")
    node = planned.run(*words, "--nolock", "--no-hooks", "--mode", "remote", studies="absent")
    assert target in {job.rule for job in node.jobs}
