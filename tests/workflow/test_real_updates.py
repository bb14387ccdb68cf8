"""docs/guide/real-updates.md, followed to the letter in a copy of the project."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest

from gleak.artifacts.encodings import Dense
from gleak.artifacts.update import Update
from gleak.experiments.cell import LEVELS, Cell

if TYPE_CHECKING:
    from tests.project import Project

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs/guide/real-updates.md").read_text(encoding="utf-8")
FLOWER = "A round of Flower"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
SECTIONS = dict(re.findall(r"^##? (.+?)\n(.*?)(?=^## |\Z)", GUIDE, re.DOTALL | re.MULTILINE))
PATHS = re.findall(r"results/artifacts/([^\s`]+)/[\w.]+", GUIDE)


def follow(project: Project, *sections: str) -> str:
    """Write the files of some sections, run their commands in order; gives what these print."""
    commands = ["set -eu", "export PYTHONPATH=."]
    for language, block in (found for name in sections for found in BLOCK.findall(SECTIONS[name])):
        if language == "sh":
            commands.append(block)
        else:
            file = re.match(r"# (\S+)\n", block)
            (project.root / file[1]).write_text(block)
    done = subprocess.run(
        ["bash", "-c", "\n".join(commands)],
        cwd=project.root,
        env={
            **os.environ,
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "OMP_NUM_THREADS": "1",
            "FLWR_TELEMETRY_ENABLED": "0",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def psnr(project: Project, capture: str, attack: str) -> np.ndarray:
    """Of each sample of a capture."""
    (path,) = project.results.glob(f"artifacts/**/*capture={capture}/none/{attack}/scores.csv")
    table = pd.read_csv(path)
    return table[table["metric"] == "psnr"]["value"].to_numpy()


@pytest.fixture(scope="module")
def followed(real: Project) -> tuple[Project, str]:
    """A copy in which all but Flower was done, and what it printed."""
    return real, follow(real, *(name for name in SECTIONS if name != FLOWER))


def test_a_pair_of_state_dicts_is_attacked_and_scored(followed: tuple[Project, str]) -> None:
    project, printed = followed
    assert "data/captures/hand: 1 clients of 4 samples, differences" in printed
    assert float(re.search(r"true samples: (\S+)", printed)[1]) < 1e-5
    assert (psnr(project, "hand", "spear") > 60).all()
    assert (project.root / "first.png").is_file()


def test_captured_cells_stand_in_a_study(followed: tuple[Project, str]) -> None:
    project, _ = followed
    assert (project.results / "studies/mine/quick/found.svg").is_file()
    assert (psnr(project, "hand", "cpa_edges") > psnr(project, "hand", "blind")).all()


@pytest.mark.skipif(
    find_spec("flwr") is None, reason="Flower is an extra, not installed: make test-flower"
)
def test_a_round_of_flower_is_attacked_and_scored(followed: tuple[Project, str]) -> None:
    project, _ = followed
    printed = follow(project, FLOWER)
    assert float(re.search(r"true samples: (\S+)", printed)[1]) < 1e-4
    assert (psnr(project, "flower", "cpa_edges") > 25).all()
    captured = Update.read(project.root / "data/captures/flower/update.h5")
    assert (captured.victims, captured.rounds, captured.local_steps) == (2, 1, 5)
    rounds = [path.name for path in (project.root / "captured").iterdir()]
    assert rounds == ["round-2"]


def test_a_capture_taken_in_anew_runs_what_was_made_of_the_old_one(
    followed: tuple[Project, str],
) -> None:
    project, _ = followed
    (found,) = project.results.glob("artifacts/**/*capture=hand/none/spear/scores.csv")
    scores = found.relative_to(project.root)
    assert project.jobs(scores) == []
    captured = project.root / "data/captures/hand/update.h5"
    update = Update.read(captured)
    other = {name: Dense(-sent.decode()) for name, sent in update.update.items()}
    replace(update, update=other).write(captured)
    assert {job.rule for job in project.jobs(scores)} == {"take_captured_update", "attack", "score"}


@pytest.mark.parametrize("path", PATHS)
def test_each_path_of_the_guide_is_a_cell(path: str) -> None:
    texts = dict(zip(LEVELS, path.split("/"), strict=False))
    assert str(Cell.from_path(texts)) == path
