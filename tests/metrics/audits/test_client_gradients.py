from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from gleak.artifacts.dataset import Dataset
from gleak.artifacts.model import Model
from gleak.core.registry import parse
from gleak.metrics.audits.alarms import audits
from gleak.metrics.audits.base import Broadcast
from gleak.metrics.audits.client_gradients import gradient_norms, measure_reach
from gleak.metrics.base import MetricUnavailable
from gleak.models.broadcast import load_network
from tests.metrics.subjects import fresh_model, train_split

CLASSES, SHAPE, BORDER = 6, (1, 6, 6), 2
NETWORK = """
import torch
from torch import nn

class Uncommon(nn.Module):
    def __init__(self):
        super().__init__()
        self.position = nn.Parameter(torch.randn(1, 36))
        self.codes = nn.Parameter(torch.arange(6).view(2, 3), requires_grad=False)
        self.grouped = nn.Conv2d(2, 4, 3, groups=2)
        self.up = nn.ConvTranspose2d(4, 2, 3)
        self.norm = nn.LayerNorm(72)
        self.last = nn.Linear(72, {classes})
        self.grouped.requires_grad_(False)

    def forward(self, images):
        shifted = (images.flatten(1) + self.position).view(-1, 1, 6, 6).repeat(1, 2, 1, 1)
        return self.last(self.norm(self.up(self.grouped(shifted)).flatten(1)))

def build(shape, classes):
    return Uncommon()

def frozen(shape, classes):
    return Uncommon().requires_grad_(False)

def double(shape, classes):
    return Uncommon().double()

def half(shape, classes):
    return Uncommon().bfloat16()
"""


@pytest.fixture(scope="module")
def data() -> Dataset:
    """Noise inside a border that is always zero."""
    pixels = np.zeros((60, *SHAPE), dtype=np.uint8)
    pixels[..., BORDER:, BORDER:] = np.random.default_rng(0).integers(1, 256, (60, 1, 4, 4))
    return train_split(pixels, CLASSES)


def model_of(spec: str) -> Model:
    return fresh_model(spec, SHAPE, CLASSES)


@pytest.fixture
def uncommon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module with frozen parameters, and with layers that are no dense ones or convolutions."""
    name = f"uncommon_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(NETWORK.replace("{classes}", str(CLASSES)))
    monkeypatch.syspath_prepend(tmp_path)
    return f"custom+factory={name}"


def test_weights_of_zero_inputs_and_of_dead_neurons_are_not_reached(data: Dataset):
    model = model_of("fc2+hidden=8")
    model.parameters["1.bias"][:3] = -100
    found = measure_reach(load_network(model, "it"), data, samples=60, seed=0)
    seen = data.samples("train").reshape(60, -1).any(axis=0)
    alive = np.arange(8) >= 3
    np.testing.assert_array_equal(found["1.weight"].reached[0], alive)
    np.testing.assert_array_equal(found["1.weight"].reached[1], seen)
    np.testing.assert_array_equal(found["3.weight"].reached[1], alive)


def test_reached_lines_have_a_gradient_for_some_sample(data: Dataset):
    model = model_of("lenet+activation=relu+width=3")
    model.parameters["0.bias"][0] = -100
    network = load_network(model, "it")
    expected = {name: np.zeros(each.shape, bool) for name, each in network.named_parameters()}
    for sample in torch.from_numpy(data.samples("train")):
        for label in range(CLASSES):
            network.zero_grad()
            network(sample[None])[0, label].backward()
            for name, each in network.named_parameters():
                expected[name] |= each.grad.numpy() != 0
    found = measure_reach(load_network(model, "it"), data, samples=60, seed=0)
    assert not expected["0.weight"].all()
    for name, reach in found.items():
        touched = expected[name].reshape(len(expected[name]), -1)
        for axis, lines in zip((1, 0), reach.reached, strict=True):
            np.testing.assert_array_equal(lines, touched.any(axis=axis))


@pytest.mark.parametrize("factory", ["build", "frozen", "double", "half"])
def test_frozen_and_uncommon_parameters_are_audited(data: Dataset, uncommon: str, factory: str):
    model = model_of(f"{uncommon}.{factory}")
    for broadcast in (Broadcast(model, data), Broadcast(model)):
        assert {layer.name for layer in broadcast.layers} >= {"position", "codes", "grouped", "up"}
        assert not any(audit.alarms(broadcast) for audit in audits())


def test_gradients_are_those_of_parameters_that_are_trained(data: Dataset, uncommon: str):
    trained, frozen = (
        gradient_norms(load_network(model_of(f"{uncommon}.{name}"), "it"), data, samples=8, seed=0)
        for name in ("build", "frozen")
    )
    assert {"position", "up.weight", "last.bias"} <= set(trained)
    assert not {"codes", "grouped.weight"} & set(trained)
    assert frozen == {}
    with pytest.raises(MetricUnavailable, match="fewer than 8 samples have a gradient"):
        parse("metric", "audit_dominance").measure(Broadcast(model_of(f"{uncommon}.frozen"), data))
