"""A cluster for each module, and copies of the project that use it or do without."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest

from tests.project import Project, copy_project
from tests.slurm.cluster import Cluster, started

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch")
PLACES = os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/sbin"])
PROFILE = ("--workflow-profile", "profiles/slurm")
SITE = ("--slurm-status-command", "squeue", "--slurm-init-seconds-before-status-checks", "2")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster without a past."""
    if missing := [name for name in PROGRAMS if not shutil.which(name, path=PLACES)]:
        pytest.skip(f"no {', '.join(missing)} here: install the packages slurm-wlm and munge")
    with started(tmp_path_factory.mktemp("slurm")) as running:
        yield running


@pytest.fixture(scope="module")
def submitting(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A copy of the project that gives its jobs to the cluster."""
    root = copy_project(tmp_path_factory.mktemp("submitting"))
    return Project(
        root, {"studies": "tiny"}, options=(*PROFILE, *SITE), environment=cluster.environment
    )


@pytest.fixture(scope="module")
def alone(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A copy of the project that does without the cluster."""
    root = copy_project(tmp_path_factory.mktemp("alone"))
    return Project(root, {"studies": "tiny"}, options=("--cores", "all"))
