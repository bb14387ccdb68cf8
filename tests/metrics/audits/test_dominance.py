from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional

from gleak.artifacts.dataset import Dataset
from gleak.artifacts.model import Model
from gleak.metrics.audits.base import Broadcast
from gleak.metrics.audits.client_gradients import gradient_norms
from gleak.metrics.audits.dominance import AuditDominance
from gleak.metrics.base import MetricUnavailable
from gleak.models.broadcast import load_network, with_state
from tests.metrics.subjects import fresh_model, train_split

CLASSES, SHAPE = 10, (1, 6, 6)
LAST = "3"


@pytest.fixture(scope="module")
def data() -> Dataset:
    """Noise of ten classes, six samples each."""
    return train_split(np.random.default_rng(0).integers(0, 256, (60, *SHAPE)), CLASSES)


@pytest.fixture(scope="module")
def model() -> Model:
    return fresh_model("fc2+hidden=20", SHAPE, CLASSES)


def changed(model: Model, weight: np.ndarray, bias: np.ndarray) -> Model:
    """The model with another last layer."""
    model = with_state(model, load_network(model, "it"))
    model.parameters[f"{LAST}.weight"][:] = weight
    model.parameters[f"{LAST}.bias"][:] = bias
    return model


def fished(model: Model) -> Model:
    rows = np.zeros_like(model.parameters[f"{LAST}.weight"])
    rows[0] = model.parameters[f"{LAST}.weight"][0]
    return changed(model, rows, np.append(0, np.full(CLASSES - 1, 50)))


def test_samples_of_a_fresh_or_of_a_confident_model_count_alike(model: Model, data: Dataset):
    assert AuditDominance().worst(Broadcast(model, data)).statistic < 2
    confident = changed(model, 300 * model.parameters[f"{LAST}.weight"], np.zeros(CLASSES))
    assert not AuditDominance().alarms(Broadcast(confident, data))


def test_a_class_that_is_fished_for_is_the_whole_sum(model: Model, data: Dataset):
    audit, broadcast = AuditDominance(), Broadcast(fished(model), data)
    found = {finding.layer: finding for finding in audit.examine(broadcast)}
    assert audit.alarms(broadcast)
    for name in ("1.weight", "1.bias"):
        assert found[name].statistic == pytest.approx(CLASSES, rel=0.1)
        assert "54 are below a thousandth" in found[name].text
    assert found[f"{LAST}.bias"].statistic == pytest.approx(1)


def test_the_client_draws_by_its_seed(model: Model, data: Dataset):
    with pytest.raises(MetricUnavailable, match="it needs 8 of the client"):
        AuditDominance().measure(Broadcast(model))
    audit = AuditDominance(samples=8)
    values = [audit.measure(Broadcast(model, data, seed)) for seed in (1, 1, 2)]
    assert values[0] == values[1] != values[2]


def test_norms_are_those_of_the_losses_gradient_over_that_at_the_logits(
    model: Model, data: Dataset
):
    norms = gradient_norms(load_network(model, "it"), data, samples=60, seed=0)
    network = load_network(model, "it")
    expected: dict[str, list[float]] = {name: [] for name in norms}
    for sample, label in zip(data.samples("train"), data.labels("train"), strict=True):
        logits = network(torch.from_numpy(sample)[None])
        logits.retain_grad()
        network.zero_grad()
        functional.cross_entropy(logits, torch.tensor([int(label)])).backward()
        for name, parameter in network.named_parameters():
            expected[name].append(float(parameter.grad.norm() / logits.grad.norm()))
    for name, values in norms.items():
        np.testing.assert_allclose(sorted(values[0]), sorted(expected[name]), rtol=1e-4)


def test_samples_without_a_gradient_are_left_out(model: Model, data: Dataset):
    certain = np.append(1e6, np.zeros(CLASSES - 1))
    without = changed(model, np.zeros_like(model.parameters[f"{LAST}.weight"]), certain)
    norms = gradient_norms(load_network(without, "it"), data, samples=60, seed=0)
    assert {name: values.shape for name, values in norms.items()} == dict.fromkeys(norms, (2, 54))


def test_samples_that_the_network_does_not_pass_are_left_out(model: Model, data: Dataset):
    """Dead for most samples: one neuron is left, and it is active for the brightest alone."""
    dead = with_state(model, load_network(model, "it"))
    dead.parameters["1.weight"][0] = 1
    dead.parameters["1.bias"][:] = -100
    sums = np.sort(data.samples("train").reshape(60, -1).sum(axis=1))
    for kept, said in ((30, {"1.weight", "1.bias", f"{LAST}.weight"}), (3, set())):
        dead.parameters["1.bias"][0] = -sums[-kept - 1]
        found = AuditDominance(samples=60).examine(Broadcast(dead, data))
        assert {finding.layer for finding in found} == said | {f"{LAST}.bias"}
        assert max(finding.statistic for finding in found) < 3


def test_the_change_of_the_logits_does_not_depend_on_the_label(model: Model, data: Dataset):
    others = replace(data, train_labels=(data.train_labels + 1) % CLASSES)
    before, after = (
        gradient_norms(load_network(model, "it"), each, samples=60, seed=0)
        for each in (data, others)
    )
    for name, values in before.items():
        np.testing.assert_array_equal(values[1], after[name][1])
        assert not np.array_equal(values[0], after[name][0])
