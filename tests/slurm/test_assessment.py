"""`gleak assess` with and without a cluster, in folders that are no clones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from gleak.cli.common import EXIT_FINDING
from tests.project import ROOT, Project
from tests.slurm.cluster import Cluster, Record
from tests.slurm.conftest import SITE

DEPLOYMENT = {"model": "lenet", "data": "digits", "victims": 5, "iterations": 50}
PROGRAM = "from gleak.cli.main import main; raise SystemExit(main())"
PROFILE = ROOT / "profiles/slurm"
SUBMIT = (
    *("--workflow-profile", str(PROFILE)),
    *("--slurm-partition-config", str(PROFILE / "partitions.yaml")),
    *SITE,
)


@dataclass(frozen=True)
class Assessed:
    """An assessment that has ended.

    Args:
        folder: it was run in.
        code: of its exit.
        printed: by the command.
    """

    folder: Path
    code: int
    printed: str

    @property
    def report(self) -> dict[str, Any]:
        """Its numbers."""
        return json.loads((self.folder / "deployment-report/report.json").read_text())

    @property
    def scores(self) -> pd.DataFrame:
        """Of all its cells."""
        return Project(self.folder).scores()


def assess(folder: Path, *options: str, environment: Mapping[str, str]) -> Assessed:
    """Assess a small deployment."""
    (folder / "deployment.yaml").write_text(json.dumps(DEPLOYMENT))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "assess", "--", *options],
        cwd=folder,
        env={**os.environ, **environment, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return Assessed(folder, done.returncode, done.stdout)


@pytest.fixture(scope="module")
def submitted(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Assessed:
    """The deployment, its jobs given to the cluster."""
    return assess(tmp_path_factory.mktemp("far"), *SUBMIT, environment=cluster.environment)


@pytest.fixture(scope="module")
def records(submitted: Assessed, cluster: Cluster) -> list[Record]:
    """What SLURM remembers of it."""
    return cluster.records()


def test_it_ends_with_the_exit_code_and_the_report_of_a_run_without_slurm(
    submitted: Assessed, tmp_path: Path
) -> None:
    alone = assess(tmp_path, "--cores", "1", environment={})
    assert submitted.code == alone.code == EXIT_FINDING, submitted.printed
    measured = {"run": None, "work": None}
    found, expected = ({**each.report, **measured} for each in (submitted, alone))
    assert found == expected
    pd.testing.assert_frame_equal(submitted.scores, alone.scores, check_exact=True)


def test_the_page_shows_the_clients(submitted: Assessed) -> None:
    page = (submitted.folder / "deployment-report/report.html").read_text()
    assert f"{submitted.report['exposures'][0]['above']} of 5" in page
    assert page.count('<img src="data:image/png;base64,') == 6


def test_its_jobs_were_given_to_slurm(records: list[Record]) -> None:
    assert {record.state for record in records} == {"COMPLETED"}
    assert {record.rule for record in records} >= {
        "train_model",
        "simulate_clients",
        "attack",
        "score",
    }
