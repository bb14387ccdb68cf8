"""Tiny victims with their candidates."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from gleak.artifacts.membership import CandidateSamples, Members
from gleak.attacks.observation import Observation
from gleak.attacks.run_attack import observe
from gleak.membership.base import Candidates
from gleak.simulation.draw_candidates import draw_candidates
from gleak.testing.tiny_cells import SEED, TinyCells

MakeVictims = Callable[..., tuple[Observation, Candidates, np.ndarray]]


@pytest.fixture
def make_victims(cells: TinyCells) -> MakeVictims:
    """Return what an attack is given of victims, and who took part; arguments as `simulate`."""

    def make(**levels: str) -> tuple[Observation, Candidates, np.ndarray]:
        folder = cells.simulate(**{"client": "fedsgd+batch_size=4+victims=3", **levels})
        drawn = draw(folder)
        observation = observe(folder / "update.h5", folder / "model.h5", {}, seed=5, device="cpu")
        samples = CandidateSamples.read(drawn / "granted" / "candidates.h5")
        member = Members.read(drawn / "members.h5").member
        return observation, Candidates.of(samples, observation, "candidates"), member

    return make


def draw(folder: Path, count: int = 24) -> Path:
    """Draw the candidates of the victims in a folder, and return the folder of their files."""
    drawn = folder / "candidates" / str(count)
    if not drawn.exists():
        files = folder / "dataset.h5", folder / "private.h5"
        draw_candidates(*files, drawn, split="test", count=count, seed=SEED)
    return drawn
