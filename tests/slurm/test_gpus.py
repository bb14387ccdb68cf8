"""Which jobs SLURM gives a GPU, and what they say where torch sees none, as on this machine."""

from __future__ import annotations

import re

import pytest

from tests.project import Project, Result
from tests.slurm.cluster import Cluster, Record

SENT = "photos/lenet/untrained/honest/fedsgd+victims=64/none"
LARGE, SMALL, NEVER = "cpl", "dlg+iterations=1", "blind"
TARGETS = [
    f"results/artifacts/{SENT}/{attack}/reconstruction.h5" for attack in (LARGE, SMALL, NEVER)
]


@pytest.fixture(scope="module")
def ran(submitting: Project) -> Result:
    """A run on a cluster whose GPUs torch does not see."""
    return submitting.snakemake(*TARGETS, "--retries", "0", device="auto")


@pytest.fixture(scope="module")
def records(ran: Result, cluster: Cluster) -> dict[str, Record]:
    """SLURM's records of the attacks, and of one job of each other rule."""
    return {
        record.job.partition("_none_")[2] or record.rule: record for record in cluster.records()
    }


def test_a_gpu_is_asked_for_where_attack_and_work_warrant_it(records: dict[str, Record]) -> None:
    assert {name for name, record in records.items() if record.gpus} == {LARGE}
    assert len(records) == 6
    assert records[LARGE].fields["Partition"] == "gpu"
    assert {records[name].fields["Partition"] for name in (SMALL, NEVER)} == {"cpu"}


def test_a_gpu_that_torch_does_not_see_stops_the_job_and_no_other(
    ran: Result, records: dict[str, Record], submitting: Project
) -> None:
    assert ran.code == 1
    assert records[LARGE].state == "FAILED"
    assert {record.state for name, record in records.items() if name != LARGE} == {"COMPLETED"}
    log = (submitting.results / "logs" / SENT / LARGE / "attack.log").read_text()
    given = r"was given a GPU \(SLURM_.*GPUS=0, .*CUDA_VISIBLE_DEVICES=0\), but torch \S+, built"
    assert re.search(given, log)
    assert log.count("\n") == 1


def test_attacks_of_a_group_use_one_gpu(
    records: dict[str, Record], submitting: Project, cluster: Cluster
) -> None:
    targets = [
        f"results/artifacts/{SENT}/dlg+iterations={count}/reconstruction.h5" for count in (2, 3)
    ]
    group = ("--groups", "attack=cells", "--group-components", "cells=2")
    submitting.run(*targets, *group, "--set-resources", "attack:gpu=1")
    (record,) = (record for record in cluster.records() if record.job == "rule_cells_attack")
    assert record.gpus == 1
