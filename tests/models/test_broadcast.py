from __future__ import annotations

from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from gleak.artifacts.model import Model
from gleak.core.errors import ArtifactError
from gleak.core.registry import parse
from gleak.models.broadcast import load_network, with_state

SOURCE = """
import torch
from torch import nn

class Mine(nn.Module):
    def __init__(self, columns, classes):
        super().__init__()
        self.first = nn.Linear(columns, columns)
        self.tied = nn.Linear(columns, columns)
        self.tied.weight = self.first.weight
        self.norm = nn.BatchNorm1d(columns)
        self.last = nn.Linear(columns, classes)
        self.register_buffer("cache", torch.ones(3), persistent=False)

    def forward(self, inputs):
        return self.last(self.norm(self.tied(self.first(inputs))))

def build(shape, classes):
    return Mine(shape[0], classes)
"""


def artifact(model: str) -> Model:
    return Model(
        model=model,
        modality="tabular",
        classes=3,
        input_shape=np.array([5]),
        parameters={},
        buffers={},
        train_loss=np.zeros(0),
        test_accuracy=np.zeros(0),
    )


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> nn.Module:
    """A network with a buffer, a shared weight and a buffer that is not saved."""
    (tmp_path / "tied_network.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    return import_module("tied_network").build((5,), 3)


def test_a_network_survives_the_file(mine: nn.Module, tmp_path: Path) -> None:
    mine.norm.running_mean += 2
    with_state(artifact("custom+factory=tied_network.build"), mine).write(tmp_path / "model.h5")
    loaded = load_network(Model.read(tmp_path / "model.h5"), "model.h5")
    inputs = torch.rand(4, 5)
    assert not loaded.training
    assert torch.equal(loaded(inputs), mine.eval()(inputs))
    assert [name for name, _ in loaded.named_parameters()] == list(
        with_state(artifact(""), mine).parameters
    )


def test_parameters_of_another_architecture_or_shape_are_refused() -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(5, 2))
    broadcast = with_state(artifact("mlp+hidden=4"), network)
    with pytest.raises(ArtifactError, match=r"model.h5: does not fit its architecture mlp"):
        load_network(broadcast, "model.h5")
    broadcast = with_state(artifact("mlp+hidden=4"), parse("model", "mlp+hidden=4").build((5,), 3))
    broadcast.parameters["1.bias"] = broadcast.parameters["1.bias"][:-1]
    with pytest.raises(ArtifactError, match=r"1\.bias"):
        load_network(broadcast, "model.h5")
