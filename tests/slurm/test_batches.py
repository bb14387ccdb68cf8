"""A batch of three attacks: one ends well, one fails, one is cancelled with the batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest

from tests.project import CELL, Project, Result
from tests.slurm.cluster import Cluster, Record

OTHER = CELL.removesuffix("none") + "topk"
QUICK, FAILING, SLOW = (
    f"{CELL}/cpl+iterations=20",
    f"{OTHER}/cpl+iterations=20",
    f"{CELL}/invertgrad+iterations=1500",
)
TARGETS = [f"results/artifacts/{cell}/scores.csv" for cell in (QUICK, FAILING, SLOW)]
UPDATES = [f"results/artifacts/{cell}/update.h5" for cell in (CELL, OTHER)]
TWO_AT_ONCE = ("--cores", "2", "--set-resources", "attack:gpu=0")


def log_of(project: Project, cell: str) -> Path:
    """What an attack writes while it runs."""
    return project.results / "logs" / cell / "attack.log"


@dataclass(frozen=True)
class Story:
    """A run with such a batch, and the run after it.

    Args:
        first: how the first run ends.
        batch: SLURM's record of the batch.
        kept: which scores there are then.
        left: cells whose attacks a dry run names then.
        stopped: the log of the attack that was cancelled.
        again: how the second run ends.
    """

    first: Result
    batch: Record
    kept: list[bool]
    left: set[str]
    stopped: str
    again: Result


def cancel_midway(project: Project, cluster: Cluster) -> None:
    """Cancel the batch once one attack ended well, one failed and one has told how far it is."""
    batch = cluster.running(
        lambda job: (
            job.batch == "cells"
            and (project.root / TARGETS[0]).exists()
            and (project.results / "damaged.txt").exists()
            and (log := log_of(project, SLOW)).exists()
            and "left" in log.read_text()
        )
    )
    cluster.ask("scancel", batch.number)


@pytest.fixture(scope="module")
def story(submitting: Project, cluster: Cluster) -> Iterator[Story]:
    """Both runs; the update of the attack that fails was damaged before."""
    with submitting.slowed() as slow:
        submitting.run(*UPDATES)
        (submitting.root / UPDATES[1]).write_text("damaged")
        with submitting.started(*TARGETS, "--retries", "0", *TWO_AT_ONCE) as ended:
            cancel_midway(submitting, cluster)
            first = ended()
        (batch,) = (record for record in cluster.records() if record.batch == "cells")
        kept = [(submitting.root / target).exists() for target in TARGETS]
        stopped = log_of(submitting, SLOW).read_text()
        slow.unlink()
        planned = submitting.jobs(*TARGETS)
        left = {job.files("output")[0].parent for job in planned if job.attacks}
        again = submitting.run(*TARGETS, *TWO_AT_ONCE)
        names = {str(folder.relative_to("results/artifacts")) for folder in left}
        yield Story(first, batch, kept, names, stopped, again)


def test_the_results_of_the_jobs_that_ended_well_are_kept(story: Story) -> None:
    assert story.first.code != 0
    assert story.batch.state == "CANCELLED"
    assert story.kept == [True, False, False]


def test_the_next_run_does_again_what_failed_and_what_was_cancelled(story: Story) -> None:
    assert story.left == {FAILING, SLOW}


def test_the_cancelled_attack_goes_on_from_its_checkpoint(
    story: Story, submitting: Project
) -> None:
    assert "stopped by SIGTERM" in story.stopped
    assert "resuming from this checkpoint" in log_of(submitting, SLOW).read_text()


def test_the_scores_are_those_of_a_run_without_faults(
    story: Story, submitting: Project, alone: Project
) -> None:
    assert story.again.code == 0
    alone.run(*TARGETS)
    pd.testing.assert_frame_equal(submitting.scores(), alone.scores(), check_exact=True)
