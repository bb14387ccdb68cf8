"""A tiny study, every job given to SLURM."""

from __future__ import annotations

import re

import pandas as pd
import pytest

from tests.project import Job, Project, Result
from tests.slurm.cluster import CPUS, GPUS, NODES, Cluster, Record, at_once, submitted_as

STUDY = "tiny"
LOCAL = {"all", "draw", "draw_table", "judge", "score_model", "tabulate"}
ON_GPUS = {"train_model", "attack"}
GPUS_GIVEN = ("--set-resources", *(f"{rule}:gpu=1" for rule in sorted(ON_GPUS)))
"""The study is too small to ask for them."""


@pytest.fixture(scope="module")
def planned(submitting: Project) -> list[Job]:
    """What a dry run says before the run."""
    jobs = submitting.run("--dry-run", *GPUS_GIVEN, studies=STUDY).jobs
    return [job for job in jobs if job.rule not in LOCAL]


@pytest.fixture(scope="module")
def ran(planned: list[Job], submitting: Project) -> Result:
    """The run."""
    return submitting.run(*GPUS_GIVEN, studies=STUDY)


@pytest.fixture(scope="module")
def records(ran: Result, cluster: Cluster) -> list[Record]:
    """What SLURM remembers of the run."""
    return cluster.records()


def test_every_job_but_the_local_ones_is_given_to_slurm_once(
    planned: list[Job], ran: Result, records: list[Record]
) -> None:
    assert sorted(record.job for record in records) == sorted(map(submitted_as, planned))
    assert {record.state for record in records} == {"COMPLETED"}
    assert set(re.findall(r"^localrule (\w+):", ran.text, re.MULTILINE)) == LOCAL


def test_jobs_get_their_partition_memory_and_time(
    planned: list[Job], records: list[Record]
) -> None:
    assert sorted(map(demanded, planned)) == sorted(map(granted, records))


def demanded(job: Job) -> tuple[str, str, int, int]:
    """What a job is, its partition, megabytes and minutes, by its resources."""
    wanted = dict(re.findall(r"(\w+)=([^,]+)", job.lines["resources"]))
    partition = "gpu" if int(wanted.get("gpu", 0)) else "cpu"
    return submitted_as(job), partition, int(wanted["mem_mb"]), int(wanted["runtime"])


def granted(record: Record) -> tuple[str, str, int, int]:
    """The same by SLURM."""
    hours, minutes, _ = map(int, record.fields["TimeLimit"].split(":"))
    megabytes = int(record.fields["MinMemoryNode"].removesuffix("M"))
    return record.job, record.fields["Partition"], megabytes, 60 * hours + minutes


def test_gpus_are_shared_out_and_no_more_of_them_than_there_are(records: list[Record]) -> None:
    assert {record.rule for record in records if record.gpus} == ON_GPUS
    assert at_once(records, lambda job: job.gpus) == NODES * GPUS
    nodes = {record.node for record in records}
    assert len(nodes) == NODES
    for node in nodes:
        assert at_once((job for job in records if job.node == node), lambda job: job.gpus) == GPUS


def test_jobs_run_side_by_side_on_every_node(records: list[Record]) -> None:
    assert NODES * GPUS < at_once(records, lambda _: 1) <= NODES * CPUS


def test_the_scores_are_those_of_a_run_without_slurm(
    ran: Result, submitting: Project, alone: Project
) -> None:
    alone.run(studies=STUDY)
    pd.testing.assert_frame_equal(submitting.scores(), alone.scores(), check_exact=True)
