from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

from gleak.artifacts.dataset import Dataset
from gleak.core.registry import parse
from gleak.metrics.audits.base import Broadcast
from gleak.metrics.audits.client_gradients import draw_batch, output_gradients, unit_directions
from gleak.metrics.audits.isolated_samples import AuditIsolation, _examine, isolating
from gleak.metrics.base import MetricUnavailable
from gleak.models.broadcast import load_network
from tests.metrics.subjects import fresh_model, train_split

SHAPE, CLASSES = (3, 8, 8), 10


@pytest.fixture(scope="module")
def data() -> Dataset:
    """Noise of different brightness."""
    random = np.random.default_rng(0)
    levels = random.normal(121, 25, (64, 1, 1, 1))
    pixels = np.clip(levels + random.normal(0, 60, (64, *SHAPE)), 0, 255)
    return train_split(pixels, CLASSES)


def test_neurons_that_single_out_a_sample_are_counted():
    """Of cumulative bins, the last alone, and of each pair of neighbours the difference."""
    slopes = np.array([0.5, -1.0, 2.0, 3.0])
    bins = np.triu(np.ones((4, 4))) * slopes
    assert isolating(bins) == (1, 2)  # where two samples are left, no ratio is the median
    alone = np.array([[0, 0, 1.0, 0], [1, 0, 0, 1e-5], [1, 2, 3, 4], [4, 1, 2, 2]])
    assert isolating(alone) == (2, 0)
    assert isolating(np.zeros((5, 3))) == (0, 0)


def test_output_gradients_are_those_of_biases_sample_by_sample(data: Dataset):
    model = fresh_model("fc2+hidden=20", SHAPE, CLASSES)
    network = load_network(model, "it")
    found = output_gradients(network, data, 5, 0, unit_directions)
    inputs, labels = (torch.from_numpy(values) for values in draw_batch(data, 5, 0))
    for at in range(5):
        network.zero_grad()
        logits = network(inputs[at : at + 1])
        slopes = logits.detach().softmax(1) - functional.one_hot(labels[at : at + 1], CLASSES)
        (logits * slopes / slopes.norm()).sum().backward()
        for name, values in found.items():
            expected = network.get_parameter(f"{name}.bias").grad
            np.testing.assert_allclose(values[:, at], expected, atol=1e-6)


def test_output_gradients_do_not_depend_on_how_well_samples_are_classified(data: Dataset):
    model = fresh_model("fc2+hidden=20", SHAPE, CLASSES)
    network, surer = load_network(model, "it"), load_network(model, "it")
    with torch.no_grad():
        surer.get_parameter("3.bias").add_(torch.eye(CLASSES)[0] * 20)
    largest = [
        np.abs(output_gradients(each, data, 16, 0, unit_directions)["3"]).max(axis=0)
        for each in (network, surer)
    ]
    assert min(each.min() for each in largest) > 0.3


@pytest.mark.parametrize(
    ("model", "crafting", "found"),
    [("fc2", "honest", False), ("planted+model=fc2", "imprint", True), ("fc2", "qbi", True)],
)
def test_crafted_layers_single_out_samples(model: str, crafting: str, found: bool, data: Dataset):
    honest = fresh_model(model, SHAPE, CLASSES)
    crafted = parse("crafting", crafting).craft(honest, 0).model
    assert AuditIsolation().alarms(Broadcast(crafted, data)) == found


def test_samples_are_needed():
    with pytest.raises(MetricUnavailable, match="samples"):
        AuditIsolation().measure(Broadcast(fresh_model("fc2", SHAPE, CLASSES)))


def test_networks_without_dense_layers_have_no_output_gradients(data: Dataset):
    network = torch.nn.Sequential(torch.nn.Conv2d(3, CLASSES, 8), torch.nn.Flatten())
    assert output_gradients(network, data, 5, 0, unit_directions) == {}


def test_isolating_neurons_count_beyond_chance():
    """9 of 64: 9 - 2 * 3 count."""
    gradients = np.random.default_rng(0).uniform(1, 2, (64, 8))
    gradients[:9] = np.eye(8)[np.arange(9) % 8]
    assert isolating(gradients) == (9, 0)
    assert _examine("1", gradients).statistic == pytest.approx(3 / 64)
