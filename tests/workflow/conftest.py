"""Copies of the project for these tests."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from gleak.artifacts.encodings import Dense
from gleak.artifacts.protocol import Protocol
from gleak.artifacts.update import Update
from gleak.core.registry import load
from tests.project import Project, copy_project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A fresh copy, for tests that change it."""
    root = copy_project(tmp_path / "project")
    return Project(root, {"studies": "tiny", "results_dir": root / "results"})


@pytest.fixture(scope="module")
def painting(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A copy with one more attack, which brings a codec."""
    root = copy_project(tmp_path_factory.mktemp("painting"))
    attack = Path(__file__).parent / "painting.py"
    shutil.copy2(attack, root / "gleak/attacks")
    (root / "data").mkdir()
    with (root / "gleak/attacks/__init__.py").open("a") as package:
        package.write("from gleak.attacks import painting as painting\n")
    return Project(root, {"studies": "tiny"})


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A copy for updates from elsewhere."""
    return Project(copy_project(tmp_path_factory.mktemp("real")))


@pytest.fixture(scope="session")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A copy that only dry runs use; importing torch stops them. Of all data there are folders."""
    root = copy_project(tmp_path_factory.mktemp("planned"))
    for name in ("chest_xrays", *load("dataset")):
        (root / "data" / name / "train").mkdir(parents=True)
    for name in ("adult.data", "adult.test"):
        (root / "data/adult" / name).touch()
    poison = tmp_path_factory.mktemp("poison")
    (poison / "torch.py").write_text("raise SystemExit('the graph is built without torch')\n")
    return Project(root, {"studies": "tiny"}, first_on_path=[poison])


@pytest.fixture(scope="session")
def captures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data with two captures, the second without truth; dry runs read the updates' spec alone."""
    data = tmp_path_factory.mktemp("data")
    for name, files in {
        "told": ("model", "private"),
        "bare": ("model",),
    }.items():
        (data / "captures" / name).mkdir(parents=True)
        for file in files:
            (data / "captures" / name / f"{file}.h5").touch()
        spec = f"digits/lenet/captured+capture={name}/honest/captured+capture={name}/none"
        sent = {"weight": Dense(np.zeros((1, 1, 2), np.float32))}
        written = Update(spec=spec, update=sent, protocol=Protocol())
        written.write(data / "captures" / name / "update.h5")
    return data
