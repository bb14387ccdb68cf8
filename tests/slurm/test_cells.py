"""Single cells: names as long as they may be, names that cannot be, and shares of a cell."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from gleak.studies.cell import LONGEST_JOB
from tests.project import CELL, Project
from tests.slurm.cluster import Cluster

ARTIFACTS = Path("results/artifacts")
NOISY = (
    "digits/lenet/untrained+init=uniform/honest/fedsgd+victims=2/gaussian+std=1.23456789012345e-4"
)
FIELDS = (
    "client_model=unrolled+lr=0.123456789012345+tv=0.0123456789012345"
    "+labels=argmin+threshold=1.234567891e-9"
)
LONGEST = f"{NOISY}/invertgrad+iterations=5+{FIELDS}"
ATTACKS = ("blind", "invertgrad+iterations=5")
SHARDS = 2


def test_the_longest_name_that_a_cell_may_have_arrives_whole(
    submitting: Project, cluster: Cluster
) -> None:
    assert len(LONGEST) == LONGEST_JOB
    submitting.run(ARTIFACTS / LONGEST / "reconstruction.h5")
    assert (submitting.root / ARTIFACTS / LONGEST / "reconstruction.h5").exists()
    (attack,) = (record for record in cluster.records() if record.rule == "attack")
    assert attack.job.endswith(LONGEST.replace("/", "_"))


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        (LONGEST.replace("=5+", "=50+"), f"is {LONGEST_JOB + 1} characters long"),
        ("folder+size=16+folder=a,b", "'a,b' may contain only letters, digits"),
        ("folder+size=16+folder=a:b", "'a:b' may contain only letters, digits"),
        ("folder+size=16+folder=a'b", '"a\'b" may contain only letters, digits'),
        ('folder+size=16+folder=a"b', "'a\"b' may contain only letters, digits"),
    ],
    ids=["longer", "comma", "colon", "quote", "double quote"],
)
def test_what_slurm_would_lose_is_refused_in_one_line(
    submitting: Project, cluster: Cluster, cell: str, message: str
) -> None:
    before = len(cluster.records())
    file = "reconstruction.h5" if cell.startswith(NOISY) else "dataset.h5"
    result = submitting.snakemake(ARTIFACTS / cell / file)
    assert result.code != 0
    (line,) = (line for line in result.text.splitlines() if line.startswith("gleak: "))
    assert message in line
    assert "Traceback" not in result.text
    assert len(cluster.records()) == before


def test_shares_of_a_cell_are_jobs_of_their_own_and_have_the_scores_of_the_whole(
    submitting: Project, alone: Project, cluster: Cluster
) -> None:
    """To a thousandth: batches of another size are summed in another order, and rounded so."""
    targets = [ARTIFACTS / CELL / attack / "scores.csv" for attack in ATTACKS]
    submitting.run(*targets, shards=SHARDS)
    shares = Counter(
        record.job.partition("_none_")[2].rsplit("_", 2)[0]
        for record in cluster.records()
        if record.rule == "attack_shard"
    )
    assert shares == dict.fromkeys(ATTACKS, SHARDS)
    alone.run(*targets)
    found, expected = submitting.scores(), alone.scores()
    names = [name for name in expected if name != "value"]
    pd.testing.assert_frame_equal(found[names], expected[names])
    np.testing.assert_allclose(found["value"], expected["value"], rtol=1e-3)
