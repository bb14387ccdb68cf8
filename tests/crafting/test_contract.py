"""Contract of all servers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from gleak.artifacts.model import Model
from gleak.core.registry import load, parse
from gleak.crafting.base import PARAMETERS, SECRET, craft_parameters
from gleak.models.broadcast import load_network


@pytest.fixture
def model_path(name: str, simulate: Callable[..., Path], fitting_model: Callable[..., str]) -> Path:
    return simulate(model=fitting_model(crafting=name)) / "model.h5"


@pytest.mark.parametrize("name", sorted(load("crafting")))
def test_crafted_parameters_fit_the_model_and_repeat(
    name: str, model_path: Path, tmp_path: Path
) -> None:
    spec = parse("crafting", name)
    folders = [tmp_path / str(number) for number in range(2)]
    for folder in folders:
        craft_parameters(spec, model_path, folder, seed=2)
    for file in (PARAMETERS, SECRET):
        assert (folders[0] / file).read_bytes() == (folders[1] / file).read_bytes()
    crafted = Model.read(folders[0] / PARAMETERS)
    assert crafted.spec == f"{Model.read(model_path).spec}/{name}"
    load_network(crafted, "parameters.h5")


@pytest.mark.parametrize("name", sorted(load("crafting")))
def test_a_server_leaves_the_model_it_was_given_as_it_was(name: str, model_path: Path) -> None:
    """One that broadcasts the model changes nothing; others broadcast other parameters."""
    spec, given, untouched = parse("crafting", name), *(Model.read(model_path) for _ in range(2))
    crafted = spec.craft(given, 0).model.parameters
    for part in ("parameters", "buffers"):
        for key, value in getattr(untouched, part).items():
            assert np.array_equal(getattr(given, part)[key], value)
    same = all(np.array_equal(crafted[key], value) for key, value in given.parameters.items())
    assert same == spec.broadcasts_model
