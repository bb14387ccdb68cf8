"""Labels inferred from gradients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrizations, prune, spectral_norm, weight_norm

from gleak.artifacts.protocol import Protocol
from gleak.attacks.matching.label_inference import (
    RULES,
    classifier_gradient,
    infer_by_argmin,
    infer_by_sign,
    inferred_labels,
    labels_of_samples,
    lowest_of_rows,
)
from gleak.core.errors import IncompatibleError
from gleak.core.registry import parse
from gleak.models.layer_search import find_classifier

CLASSES = 10


def scores_of(labels: list[int], seed: int, *, bias: bool = True) -> Tensor:
    """Return the class scores from the gradient of a random network's mean cross-entropy."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(6, 20), nn.Sigmoid(), nn.Linear(20, CLASSES, bias=bias))
        inputs = torch.rand(len(labels), 6)
    update = parse("client", "fedsgd").compute(model, inputs, torch.tensor(labels))
    return classifier_gradient(find_classifier(model, (6,), CLASSES), update)


@given(st.lists(st.integers(0, CLASSES - 1), min_size=1, max_size=4), st.integers(0, 10**6))
def test_argmin_finds_labels_that_repeat(labels: list[int], seed: int):
    """A fresh network is unsure: its probabilities differ by less than one sample's share."""
    found = infer_by_argmin(scores_of(labels, seed), len(labels))
    assert sorted(found[0].tolist()) == sorted(labels)


@given(
    st.lists(st.integers(0, CLASSES - 1), min_size=1, max_size=4, unique=True),
    st.integers(0, 10**6),
    st.booleans(),
)
def test_sign_finds_labels_that_differ(labels: list[int], seed: int, bias: bool):
    scores = scores_of(labels, seed, bias=bias)
    assert (scores < 0).sum() == len(labels)
    assert sorted(infer_by_sign(scores, len(labels))[0].tolist()) == sorted(labels)


def test_victims_are_judged_one_by_one():
    rows = [scores_of(labels, 3) for labels in ([0, 0], [9, 4])]
    assert infer_by_argmin(torch.cat(rows), 2).sort(1).values.tolist() == [[0, 0], [4, 9]]


def test_sign_refuses_more_samples_than_classes():
    with pytest.raises(IncompatibleError, match="2 classes are too few for a batch of 3"):
        infer_by_sign(torch.zeros(1, 2), 3)


@pytest.mark.parametrize("seed", range(5))
def test_least_entries_of_rows_tell_unique_labels(seed: int):
    """Also for a confident network, where sums of rows mix the signs of labels and of others."""
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Linear(50, 10))
    features, labels = torch.rand(4, 50) ** 8, torch.randperm(10)[:4]
    update = parse("client", "fedsgd").compute(network, features, labels)
    found = infer_by_sign(lowest_of_rows(find_classifier(network, (50,), 10), update), 4)
    assert sorted(found[0].tolist()) == sorted(labels.tolist())


SHAPE, WIDTH, STEPS = (2, 4, 4), 64, 18


class HeadFirst(nn.Module):
    """Its classifier is registered before the body, and heads that are not used stand around it."""

    def __init__(self, head: nn.Module | None = None) -> None:
        super().__init__()
        self.unused_first = nn.Linear(WIDTH, CLASSES)
        self.head = head or nn.Linear(WIDTH, CLASSES)
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(32, WIDTH), nn.ReLU())
        self.auxiliary = nn.Linear(WIDTH, CLASSES)

    def forward(self, inputs: Tensor) -> Tensor:
        features = self.body(inputs)
        logits = self.head(features)
        self.beside = self.auxiliary(features)
        return logits


def seen(
    model: nn.Module, labels: list[list[int]], inputs: Tensor | None = None, **options: Any
) -> tuple[SimpleNamespace, dict[str, Tensor]]:
    """Return the observation of clients with these labels, and their gradients."""
    count, samples = len(labels), len(labels[0])
    stream = torch.Generator().manual_seed(1)
    held = torch.rand(count, samples, *SHAPE, generator=stream) if inputs is None else inputs
    client, told = parse("client", "fedsgd"), torch.tensor(labels)
    client = client.model_copy(update={"label_smoothing": options.get("label_smoothing")})
    sent = [client.compute(model, *batch) for batch in zip(held, told, strict=True)]
    update = {name: torch.cat([each[name] for each in sent]) for name in sent[0]}
    observation = SimpleNamespace(
        model=model.eval().requires_grad_(False),
        input_shape=SHAPE,
        classes=CLASSES,
        batch_size=samples,
        protocol=Protocol(batch_size=samples, **options),
    )
    return observation, update


def fresh(make: Callable[[], nn.Module], seed: int = 0) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


UNIQUE = [[3, 1, 8], [9, 0, 5]]
SORTED = [[1, 3, 8], [0, 5, 9]]


@pytest.mark.parametrize("rule", RULES)
def test_unused_heads_do_not_mislead_and_a_frozen_one_is_refused(rule: str):
    observation, update = seen(fresh(HeadFirst), UNIQUE)
    assert inferred_labels(rule, observation, update).tolist() == SORTED
    trained = {name: value for name, value in update.items() if not name.startswith("head.")}
    fault = r"no gradient of the classifier, layer 'head'.*labels=known"
    with pytest.raises(IncompatibleError, match=fault):
        inferred_labels(rule, observation, trained)


REPEATED = [[3, 1, 3, 8], [0, 0, 9, 0]]


@pytest.mark.parametrize("rule", ["argmin", "counts", "auto"])
@pytest.mark.parametrize("share", [0.1, 0.3])
def test_labels_that_clients_smooth_are_counted(rule: str, share: float):
    observation, update = seen(fresh(HeadFirst), REPEATED, label_smoothing=share)
    expected = [sorted(labels) for labels in REPEATED]
    assert inferred_labels(rule, observation, update).tolist() == expected


def weight_of(wrap: Callable[[nn.Linear], nn.Module]) -> Callable[[], nn.Module]:
    return lambda: HeadFirst(wrap(nn.Linear(WIDTH, CLASSES)))


COMPUTED = {
    "weight norm": weight_of(parametrizations.weight_norm),
    "spectral norm": weight_of(parametrizations.spectral_norm),
    "old spectral norm": weight_of(spectral_norm),
    "pruned": weight_of(lambda layer: prune.l1_unstructured(layer, "weight", 0.3)),
}


@pytest.mark.parametrize("make", COMPUTED.values(), ids=COMPUTED)
def test_the_bias_serves_where_the_weight_is_computed(make: Callable[[], nn.Module]):
    observation, update = seen(fresh(make).eval(), UNIQUE)
    for rule in ("sign", "argmin", "auto"):
        assert inferred_labels(rule, observation, update).tolist() == SORTED
    for rule in ("rows", "counts"):
        fault = rf"labels={rule} reads .* layer 'head' computes its weight"
        with pytest.raises(IncompatibleError, match=fault):
            inferred_labels(rule, observation, update)


@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
def test_old_weight_norm_is_read_by_its_bias():
    observation, update = seen(fresh(weight_of(weight_norm)), UNIQUE)
    assert inferred_labels("argmin", observation, update).tolist() == SORTED
    with pytest.raises(IncompatibleError, match="weight_g and weight_v"):
        inferred_labels("rows", observation, update)


def test_a_model_without_a_classifier_is_refused():
    model = nn.Sequential(nn.Flatten(), nn.Linear(32, CLASSES + 1))
    observation, update = seen(model, UNIQUE)
    with pytest.raises(IncompatibleError, match=r"no dense layer with 10 outputs.*labels=known"):
        inferred_labels("auto", observation, update)


class Pooled(nn.Module):
    """Its classifier is a convolution of 1 x 1, whose outputs are averaged."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(2, 8, 3), nn.ReLU())
        self.head = nn.Conv2d(8, CLASSES, 1)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.body(inputs)).mean((2, 3))


def test_a_convolution_that_is_pooled_serves():
    observation, update = seen(fresh(Pooled), UNIQUE)
    for rule in ("sign", "rows", "argmin", "auto"):
        assert inferred_labels(rule, observation, update).tolist() == SORTED
    with pytest.raises(IncompatibleError, match=r"labels=counts needs .* outputs are the logits"):
        inferred_labels("counts", observation, update)


@pytest.fixture(scope="module")
def learned() -> tuple[nn.Module, Tensor, Tensor]:
    """Return a network trained to classify noisy prototypes, the samples and their labels."""
    stream = torch.Generator().manual_seed(0)
    labels = torch.arange(200) % CLASSES
    centres = torch.rand(CLASSES, *SHAPE, generator=stream)
    inputs = centres[labels] + 0.1 * torch.randn(200, *SHAPE, generator=stream)
    model = fresh(HeadFirst)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(STEPS):
        optimizer.zero_grad()
        functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    assert (model(inputs).argmax(1) == labels).float().mean() > 0.95
    return model, inputs, labels


def taken(learned: tuple[nn.Module, Tensor, Tensor], classes: list[int]) -> Tensor:
    """Select samples of these classes, equal within a class; Shape (1, N, *shape)."""
    _, inputs, labels = learned
    return torch.stack([inputs[labels == each][0] for each in classes])[None]


BATCHES = (
    [4, 7],
    [2, 2, 5, 9],
    [0, 0, 0, 1, 6, 6],
    [0, 0, 0, 0, 0, 3, 3, 3, 3, 8, 8, 8, 8, 8, 8, 8],
)


@pytest.mark.parametrize("labels", BATCHES, ids=len)
def test_counts_are_exact_for_a_trained_network_and_one_sample_of_each_class_repeated(
    learned: tuple[nn.Module, Tensor, Tensor], labels: list[int]
):
    observation, update = seen(learned[0].requires_grad_(), [labels], taken(learned, labels))
    for rule in ("counts", "auto"):
        assert inferred_labels(rule, observation, update).tolist() == [sorted(labels)]


def test_counts_beat_shares_on_a_trained_network(learned: tuple[nn.Module, Tensor, Tensor]):
    model, inputs, labels = learned
    chosen = torch.randint(200, (12, 8), generator=torch.Generator().manual_seed(3))
    observation, update = seen(model.requires_grad_(), labels[chosen].tolist(), inputs[chosen])
    true = functional.one_hot(labels[chosen], CLASSES).sum(1)
    shares = []
    for rule in ("argmin", "counts"):
        found = functional.one_hot(inferred_labels(rule, observation, update), CLASSES).sum(1)
        shares.append(torch.minimum(found, true).sum() / true.sum())
    assert shares[1] > shares[0] + 0.2


def test_counts_are_of_cross_entropy():
    observation, update = seen(fresh(HeadFirst), UNIQUE, loss="nll_raw")
    with pytest.raises(IncompatibleError, match=r"needs cross-entropy \(here: nll_raw\)"):
        inferred_labels("counts", observation, update)


class Scaled(nn.Module):
    """A network without a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.ones(1))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.factor * inputs.flatten(1)[:, :4]


@pytest.mark.parametrize("model", ["mlp+hidden=12", "lenet+width=4", "lenet+activation=relu"])
@pytest.mark.parametrize("factor", [1, 0.01])
def test_labels_of_given_samples_are_in_their_order(
    model: str, factor: float, make_observation: Callable[..., Any]
):
    """Whatever the scale of what was sent."""
    seen, inputs, labels = make_observation(model, samples=3)
    update = {name: factor * value for name, value in seen.update.items()}
    seen = replace(seen, update=update, granted={})
    for order in ([0, 1, 2], [2, 0, 1]):
        known = np.full((3, 3), -1)
        found = labels_of_samples(seen, inputs[:, order].numpy(), known)
        assert torch.equal(found, labels[:, order])


@pytest.mark.parametrize("by_size", [True, False])
def test_labels_of_given_samples_follow_from_a_part_of_the_gradient(
    by_size: bool, make_observation: Callable[..., Any]
):
    seen, inputs, labels = make_observation("mlp+hidden=24", samples=3)
    stream = torch.Generator().manual_seed(2)
    received, masks = {}, {}
    for name, value in seen.update.items():
        score = value.abs() if by_size else torch.rand(value.shape, generator=stream)
        masks[name] = (score > score.flatten(1).quantile(0.5)).to(value)
        received[name] = masks[name] * value
    partial = replace(seen, update=received, sent=masks, granted={})
    found = labels_of_samples(partial, inputs.numpy(), np.full((3, 3), -1))
    assert torch.equal(found, labels)


def test_labels_of_samples_are_the_known_ones_without_a_gradient_to_read(
    make_observation: Callable[..., Any],
):
    seen, inputs, _ = make_observation(samples=2)
    known = np.array([[1, -1], [2, 3], [-1, 0]])
    bias = [name for name in seen.update if name.endswith("bias")][-1]
    frozen = {name: value for name, value in seen.update.items() if name != bias}
    for other in (replace(seen, update=frozen), replace(seen, model=Scaled())):
        found = labels_of_samples(other, inputs.numpy(), known)
        assert found.tolist() == [[1, 0], [2, 3], [0, 0]]
