from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from gleak.errors import FitError
from gleak.matching.labels import (
    classifier_gradient,
    infer_by_argmin,
    infer_by_sign,
    lowest_of_rows,
)
from gleak.registry import parse

CLASSES = 10


def scores_of(labels: list[int], seed: int, *, bias: bool = True) -> Tensor:
    """What is read off the gradient of a random network's mean cross-entropy."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(6, 20), nn.Sigmoid(), nn.Linear(20, CLASSES, bias=bias))
        inputs = torch.rand(len(labels), 6)
    update = parse("client", "fedsgd").compute(model, inputs, torch.tensor(labels))
    return classifier_gradient(model, update, CLASSES)


@given(st.lists(st.integers(0, CLASSES - 1), min_size=1, max_size=4), st.integers(0, 10**6))
def test_argmin_finds_labels_that_repeat(labels: list[int], seed: int) -> None:
    """A fresh network is unsure: its probabilities differ by less than one sample's share."""
    found = infer_by_argmin(scores_of(labels, seed), len(labels))
    assert sorted(found[0].tolist()) == sorted(labels)


@given(
    st.lists(st.integers(0, CLASSES - 1), min_size=1, max_size=4, unique=True),
    st.integers(0, 10**6),
    st.booleans(),
)
def test_sign_finds_labels_that_differ(labels: list[int], seed: int, bias: bool) -> None:
    scores = scores_of(labels, seed, bias=bias)
    assert (scores < 0).sum() == len(labels)
    assert sorted(infer_by_sign(scores, len(labels))[0].tolist()) == sorted(labels)


@given(st.integers(0, CLASSES - 1), st.integers(0, 10**6), st.booleans())
def test_the_rules_agree_on_one_sample(label: int, seed: int, bias: bool) -> None:
    scores = scores_of([label], seed, bias=bias)
    assert infer_by_argmin(scores, 1).tolist() == infer_by_sign(scores, 1).tolist() == [[label]]


def test_the_scores_are_left_as_they_are() -> None:
    scores = scores_of([1, 1], 0)
    before = scores.clone()
    infer_by_argmin(scores, 2)
    assert torch.equal(scores, before)


def test_victims_are_judged_one_by_one() -> None:
    rows = [scores_of(labels, 3) for labels in ([0, 0], [9, 4])]
    assert infer_by_argmin(torch.cat(rows), 2).sort(1).values.tolist() == [[0, 0], [4, 9]]


def test_the_last_layer_of_the_right_width_is_read() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3, bias=False))
    update = {name: torch.randn(2, *p.shape) for name, p in model.named_parameters()}
    assert torch.equal(classifier_gradient(model, update, 3), update["2.weight"].sum(-1))


def test_a_model_without_a_classifier_is_refused() -> None:
    with pytest.raises(FitError, match="no dense layer with 7 outputs; only attacks"):
        classifier_gradient(nn.Sequential(nn.Linear(3, 4)), {}, 7)


def test_sign_refuses_more_samples_than_classes() -> None:
    with pytest.raises(FitError, match="2 classes do not serve a batch of 3"):
        infer_by_sign(torch.zeros(1, 2), 3)


@pytest.mark.parametrize("seed", range(5))
def test_least_entries_of_rows_tell_unique_labels(seed: int) -> None:
    """Of a confident network too, where sums of rows mix the labels' with the others' signs."""
    torch.manual_seed(seed)
    layer = nn.Linear(50, 10)
    features, labels = torch.rand(4, 50) ** 8, torch.randperm(10)[:4]
    loss = nn.functional.cross_entropy(layer(features), labels)
    names = [f"0.{name}" for name, _ in layer.named_parameters()]
    gradients = torch.autograd.grad(loss, list(layer.parameters()))
    update = {name: value[None] for name, value in zip(names, gradients, strict=True)}
    found = infer_by_sign(lowest_of_rows(nn.Sequential(layer), update, 10), 4)
    assert sorted(found[0].tolist()) == sorted(labels.tolist())
