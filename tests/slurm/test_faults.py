"""Attacks that are cancelled or run out of time: others go on, and the next run mends it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest

from tests.project import CELL, Project, Result
from tests.slurm.cluster import Cluster, Record

QUICK = "cpl+iterations=20"
CANCELLED = "invertgrad+iterations=1500"
LATE = "invertgrad+iterations=1500+tv=0.01"
TARGETS = [f"results/artifacts/{CELL}/{attack}/scores.csv" for attack in (QUICK, CANCELLED, LATE)]
LIMITED = ("--set-resources", "attack:runtime=1", "attack:gpu=1")
Jobs = dict[tuple[str, str], Record]


def by_attack(records: list[Record]) -> Jobs:
    """Jobs by rule and attack, which is empty for what comes before."""
    return {(record.rule, record.job.partition("_none_")[2]): record for record in records}


def log_of(project: Project, attack: str) -> Path:
    """What an attack writes while it runs."""
    return project.results / "logs" / CELL / attack / "attack.log"


def cancel_midway(project: Project, cluster: Cluster, attack: str) -> None:
    """Cancel an attack's job once it has told how far it is."""
    log = log_of(project, attack)
    job = cluster.running(
        lambda job: job.log.find(f"{attack}/") > 0 and log.exists() and "left" in log.read_text()
    )
    cluster.ask("scancel", job.number)


@dataclass(frozen=True)
class Story:
    """A run in which one attack is cancelled and one runs out of time, and the run after it.

    Args:
        first: how the first run ends.
        jobs: SLURM's records of it.
        left: rules and attacks that a dry run names then.
        stopped: by attack, the log of the job that was ended.
        again: SLURM's records of the second run.
    """

    first: Result
    jobs: Jobs
    left: set[tuple[str, str]]
    stopped: dict[str, str]
    again: Jobs


@pytest.fixture(scope="module")
def story(submitting: Project, cluster: Cluster) -> Iterator[Story]:
    """Both runs."""
    with submitting.slowed() as slow:
        with submitting.started(*TARGETS, "--retries", "0", *LIMITED) as ended:
            cancel_midway(submitting, cluster, CANCELLED)
            first = ended()
        before = cluster.records()
        stopped = {attack: log_of(submitting, attack).read_text() for attack in (CANCELLED, LATE)}
        slow.unlink()
        planned = submitting.jobs(*TARGETS)
        submitting.run(*TARGETS)
        left = {(job.rule, job.wildcards["attack"]) for job in planned}
        again = [record for record in cluster.records() if record.job and record not in before]
        yield Story(first, by_attack(before), left, stopped, by_attack(again))


@pytest.mark.parametrize(("attack", "state"), [(CANCELLED, "CANCELLED"), (LATE, "TIMEOUT")])
def test_a_run_says_which_job_ended_how_and_where_its_logs_are(
    story: Story, submitting: Project, attack: str, state: str
) -> None:
    job = story.jobs["attack", attack]
    assert job.state == state
    assert f"SLURM-job '{job.number}' failed, SLURM status is: '{state}'" in story.first.text
    log = log_of(submitting, attack).relative_to(submitting.root)
    assert f"log: {log}, {job.log} (check log file(s) for error details)" in story.first.text


def test_other_jobs_go_on(story: Story) -> None:
    assert story.first.code != 0
    assert story.jobs["attack", LATE].end > story.jobs["attack", CANCELLED].end
    assert {story.jobs[rule, QUICK].state for rule in ("attack", "score")} == {"COMPLETED"}
    assert ("score", CANCELLED) not in story.jobs
    assert ("score", LATE) not in story.jobs


def test_the_next_run_does_again_what_failed_and_nothing_else(story: Story) -> None:
    expected = {(rule, attack) for rule in ("attack", "score") for attack in (CANCELLED, LATE)}
    assert story.left == expected == set(story.again)
    assert {job.state for job in story.again.values()} == {"COMPLETED"}


@pytest.mark.parametrize("attack", [CANCELLED, LATE])
def test_what_was_ended_goes_on_from_its_checkpoint(
    story: Story, submitting: Project, attack: str
) -> None:
    assert "stopped by SIGTERM" in story.stopped[attack]
    assert "run again to resume from there" in story.stopped[attack]
    assert "resuming from this checkpoint" in log_of(submitting, attack).read_text()


def test_the_scores_are_those_of_a_run_without_faults(
    story: Story, submitting: Project, alone: Project
) -> None:
    alone.run(*TARGETS)
    pd.testing.assert_frame_equal(submitting.scores(), alone.scores(), check_exact=True)
