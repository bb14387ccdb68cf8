"""docs/guide/real-updates.md, followed to the letter in a copy of the project."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest

from gleak.artifacts.encodings import Dense
from gleak.artifacts.update import Update
from tests.guide import follow, sections

if TYPE_CHECKING:
    from tests.project import Project

pytestmark = pytest.mark.slow

PAGE = "docs/guide/real-updates.md"
FLOWER = "A round of Flower"  # test_flower_guide.py
SECTIONS = sections(PAGE)


def psnr(project: Project, capture: str, attack: str) -> np.ndarray:
    """Of each sample of a capture."""
    (path,) = project.results.glob(f"artifacts/**/*capture={capture}/none/{attack}/scores.csv")
    table = pd.read_csv(path)
    return table[table["metric"] == "psnr"]["value"].to_numpy()


@pytest.fixture(scope="module")
def followed(real: Project) -> tuple[Project, str]:
    """A copy in which all but Flower was done, and what it printed."""
    return real, follow(real.root, *(text for name, text in SECTIONS.items() if name != FLOWER))


def test_a_pair_of_state_dicts_is_attacked_and_scored(followed: tuple[Project, str]) -> None:
    project, printed = followed
    assert "data/captures/hand: 1 clients of 4 samples, differences" in printed
    assert float(re.search(r"true samples: (\S+)", printed)[1]) < 1e-5
    assert (psnr(project, "hand", "spear") > 60).all()
    assert (project.root / "first.png").is_file()


def test_training_is_captured_where_it_happens(followed: tuple[Project, str]) -> None:
    project, printed = followed
    assert "data/captures/local: 1 clients of 4 samples, differences" in printed
    errors = [float(error) for error in re.findall(r"true samples: (\S+)", printed)]
    assert max(errors) < 1e-4
    captured = Update.read(project.root / "data/captures/local/update.h5")
    protocol = captured.protocol
    assert (protocol.local_steps, protocol.local_lr) == (5, 0.05)
    assert (str(protocol.optimizer), str(protocol.schedule)) == ("sgd+momentum=0.9", "cosine")


def test_captured_cells_stand_in_a_study(followed: tuple[Project, str]) -> None:
    project, _ = followed
    assert (project.results / "studies/mine/quick/found.svg").is_file()
    assert (psnr(project, "hand", "cpa_edges") > psnr(project, "hand", "blind")).all()


def test_a_defence_of_the_client_is_imported(followed: tuple[Project, str]) -> None:
    project, printed = followed
    found = re.search(r"under the defence: (\S+), of two draws .* ([\d.]+)", printed)
    error, drawn = found.groups()
    assert float(error) == pytest.approx(float(drawn), rel=0.1)
    captured = Update.read(project.root / "data/captures/defended/update.h5")
    assert captured.protocol.clipping == "update"


def test_a_defence_is_tried_on_simulated_clients(followed: tuple[Project, str]) -> None:
    project, printed = followed
    assert re.search(r"^none +3 +\d", printed, re.MULTILINE)
    assert re.search(r"^gaussian\+std=1\+unit=norm +3 +\d", printed, re.MULTILINE)
    assert (project.root / "defended.png").is_file()


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
