"""The round of Flower in docs/guide/real-updates.md, followed to the letter."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is an extra, not installed: make test-flower")

from gleak.artifacts.update import Update
from tests.guide import follow
from tests.project import Project, copy_project
from tests.workflow.test_real_updates import FLOWER, SECTIONS, psnr

pytestmark = pytest.mark.slow

FOLLOWED = (
    "Your model and your images",
    "A pair of state dicts",
    FLOWER,
)  # each uses the files before


def test_a_round_of_flower_is_attacked_and_scored(tmp_path: Path) -> None:
    project = Project(copy_project(tmp_path / "project"))
    printed = follow(project.root, *(SECTIONS[name] for name in FOLLOWED))
    errors = [float(error) for error in re.findall(r"true samples: (\S+)", printed)]
    assert max(errors) < 1e-4
    assert (psnr(project, "flower", "cpa_edges") > 25).all()
    captured = Update.read(project.root / "data/captures/flower/update.h5")
    assert (captured.victims, captured.rounds, captured.protocol.local_steps) == (2, 1, 5)
    rounds = [path.name for path in (project.root / "captured").iterdir()]
    assert rounds == ["round-2"]
