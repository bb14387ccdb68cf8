"""Observations of tiny victims."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from gleak.artifacts.private import Private
from gleak.attacks.base import AttackSpec
from gleak.attacks.observation import Observation
from gleak.core.registry import parse
from gleak.crafting.base import PARAMETERS, craft_parameters
from gleak.metrics.reconstruction.assignment import assign_samples, gather
from gleak.simulation.simulate import simulate_clients
from gleak.testing.tiny_cells import TinyCells
from gleak.training.train_model import train_model

Look = Callable[..., Observation]


@pytest.fixture(scope="session")
def look(cells: TinyCells) -> Look:
    """Observe a cell's folder with an attack of this spec; options as in `observe`.

    What it brings is as small as it goes, whatever the spec says.
    """
    return cells.observe


@pytest.fixture
def make_case(
    simulate: Callable[..., Path], look: Look
) -> Callable[..., tuple[Observation, Private]]:
    """Return an observation for an attack of this spec and the truth; arguments as `simulate`."""

    def make(spec: AttackSpec, *choice: str, **choices: str) -> tuple[Observation, Private]:
        folder = simulate(*choice, **{"crafting": spec.crafting or "honest", **choices})
        return look(folder, spec), Private.read(folder / "private.h5")

    return make


@pytest.fixture(scope="session")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of small real images, which have edges."""
    folder = tmp_path_factory.mktemp("photos")
    parse("dataset", "photos+size=16+crops=4").load(folder, seed=0).write(folder / "dataset.h5")
    return folder / "dataset.h5"


@pytest.fixture(scope="session")
def make_photo_case(
    photographs: Path, tmp_path_factory: pytest.TempPathFactory, look: Look
) -> Callable[..., tuple[Observation, Private]]:
    """Return an observation of two victims with real images, and the truth.

    Parameters are crafted as the attack has it, or as asked.
    """
    made: dict[tuple[str, ...], Path] = {}

    def simulate(client: str, model: str, defense: str, crafting: str) -> Path:
        folder = tmp_path_factory.mktemp("cell")
        architecture, training = parse("model", model), parse("training", "untrained")
        server = parse("crafting", crafting)
        train_model(architecture, training, photographs, folder / "model.h5", seed=1, device="cpu")
        if not server.broadcasts_model:
            craft_parameters(server, folder / "model.h5", folder, seed=1)
        simulate_clients(
            parse("client", client),
            parse("defense", defense),
            photographs,
            folder / ("model.h5" if server.broadcasts_model else PARAMETERS),
            folder,
            spec=f"photos/{architecture}",
            seed=1,
            device="cpu",
        )
        return folder

    def make(
        spec: AttackSpec,
        client: str = "fedsgd+batch_size=6+victims=2",
        model: str = "fc2",
        defense: str = "none",
        crafting: str | None = None,
    ) -> tuple[Observation, Private]:
        key = (client, model, defense, crafting or spec.crafting or "honest")
        folder = made[key] = made.get(key) or simulate(*key)
        return look(folder, spec, reads=spec.reads), Private.read(folder / "private.h5")

    return make


@pytest.fixture
def psnr() -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """Compute the peak signal-to-noise ratio of the sample assigned to each true one, in dB."""

    def measure(truth: np.ndarray, estimate: np.ndarray) -> np.ndarray:
        found = gather(estimate, assign_samples(truth, estimate), np.nan)
        return -10 * np.log10(((found - truth) ** 2).mean((2, 3, 4)) + 1e-10)

    return measure
