"""Observations of tiny victims."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gleak.artifacts.private import Private
from gleak.attacks.base import AttackSpec
from gleak.attacks.matching import kernels
from gleak.attacks.observation import Observation
from gleak.core.registry import parse
from gleak.crafting.base import PARAMETERS, craft_parameters
from gleak.simulation.simulate import simulate_clients
from gleak.testing.tiny_cells import TinyCells
from gleak.training.train_model import train_model
from tests.attacks.cases import Make


@pytest.fixture(params=["cpu", "gpu"])
def kernels_of_either_device(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run a test with the kernels for a CPU, and with those for a GPU on the CPU."""
    if request.param == "gpu":
        monkeypatch.setattr(kernels, "on_cpu", lambda _: False)


@pytest.fixture
def make_case(simulate: Callable[..., Path], cells: TinyCells) -> Make:
    """Return an observation for an attack of this spec and the truth; arguments as `simulate`."""

    def make(spec: AttackSpec, *choice: str, **choices: str) -> tuple[Observation, Private]:
        folder = simulate(*choice, **{"crafting": spec.crafting or "honest", **choices})
        return cells.observe(folder, spec), Private.read(folder / "private.h5")

    return make


@pytest.fixture(scope="session")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of small real images, which have edges."""
    folder = tmp_path_factory.mktemp("photos")
    parse("dataset", "photos+size=16+crops=4").load(folder, seed=0).write(folder / "dataset.h5")
    return folder / "dataset.h5"


@pytest.fixture(scope="session")
def make_photo_case(
    photographs: Path, tmp_path_factory: pytest.TempPathFactory, cells: TinyCells
) -> Make:
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
        return cells.observe(folder, spec, reads=spec.reads), Private.read(folder / "private.h5")

    return make
