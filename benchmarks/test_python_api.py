"""An attack by the Python API beside the same one on the files of the workflow.

One photograph of 32 pixels, LeNet with the paper's start; reading and writing files counts.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import gleak
from gleak.artifacts.model import Model
from gleak.artifacts.reconstruction import Reconstruction
from gleak.artifacts.update import Update
from gleak.attacks.run_attack import attack
from gleak.core.registry import parse
from gleak.models.broadcast import load_network
from gleak.simulation.simulate import simulate_clients
from gleak.training.train_model import train_model

SPECS = ("cpl", "invertgrad+iterations=200")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One victim's files."""
    folder = tmp_path_factory.mktemp("cell")
    data, model = folder / "dataset.h5", folder / "model.h5"
    parse("dataset", "photos").load(folder, seed=0).write(data)
    training = parse("training", "untrained+init=uniform")
    train_model(parse("model", "lenet"), training, data, model, seed=0, device="cpu")
    clients = parse("client", "fedsgd+victims=1"), parse("defense", "none")
    simulate_clients(*clients, data, model, folder, spec="photos/lenet", seed=0, device="cpu")
    return folder


@pytest.fixture(scope="module")
def given(folder: Path) -> tuple[nn.Module, dict[str, Tensor]]:
    """The network and the gradients in memory."""
    update = Update.read(folder / "update.h5").update
    network = load_network(Model.read(folder / "model.h5"), "model.h5")
    return network, {name: torch.from_numpy(each.decode()[0, 0]) for name, each in update.items()}


@pytest.mark.parametrize("spec", SPECS)
def test_attack_on_files(benchmark: Callable, folder: Path, spec: str) -> None:
    files = (folder / "update.h5", folder / "model.h5", {}, folder / "reconstruction.h5")
    benchmark.pedantic(
        attack,
        (parse("attack", spec), *files),
        {"seed": 0, "device": "cpu"},
        rounds=5,
        warmup_rounds=1,
    )


@pytest.mark.parametrize("spec", SPECS)
def test_attack_in_memory(
    benchmark: Callable,
    folder: Path,
    given: tuple[nn.Module, dict[str, Tensor]],
    spec: str,
) -> None:
    found = benchmark.pedantic(
        gleak.attack, (spec, *given), {"device": "cpu"}, rounds=5, warmup_rounds=1
    )
    files = (folder / "update.h5", folder / "model.h5", {}, folder / "expected.h5")
    attack(parse("attack", spec), *files, seed=0, device="cpu")
    expected = Reconstruction.read(folder / "expected.h5")
    assert np.array_equal(found.inputs.numpy(), expected.inputs[0])
