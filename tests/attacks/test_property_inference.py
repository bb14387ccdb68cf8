from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gleak.artifacts.private import Private
from gleak.attacks.melis import class_log_odds, cosines, inner_products
from gleak.core.registry import parse
from gleak.models.stochastic import deterministic_copy
from gleak.observation import Observation

Make = Callable[..., tuple[Observation, Private]]
MELIS = parse("attack", "melis")
CLIENT = parse("client", "fedsgd")


@pytest.mark.parametrize("model", ["lenet+width=4", "lenet+precode=3+beta=1"])
def test_inner_products_are_those_of_the_gradients(make_case: Make, model: str) -> None:
    """Of a variational block those that an attacker computes, who does not know what is drawn."""
    seen, _ = make_case(MELIS, model=model)
    inputs = torch.rand(11, *seen.input_shape, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(11) % 4
    network = deterministic_copy(seen.model).requires_grad_(True)
    samples = zip(inputs.split(1), labels.split(1), strict=True)
    computed = [CLIENT.compute(network, *each) for each in samples]
    network.requires_grad_(False)
    of_samples = {name: torch.cat([one[name] for one in computed]) for name in computed[0]}
    every = torch.cat(
        [torch.cat([of_samples[name], seen.update[name][:, 0]]).flatten(1) for name in of_samples],
        1,
    ).numpy()
    found = inner_products(seen, inputs, labels)
    np.testing.assert_allclose(found, every @ every.T, rtol=1e-3, atol=1e-5)


@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 99))
def test_cosines_are_those_of_the_batches_mean_gradient(
    batches: int, samples: int, seed: int
) -> None:
    random = np.random.default_rng(seed)
    gradients, members = random.normal(size=(6, 9)), random.integers(0, 6, (batches, samples))
    means = gradients[members].mean(1)
    lengths = np.linalg.norm(means, axis=1)[:, None] * np.linalg.norm(gradients, axis=1)
    found = cosines(gradients @ gradients.T, members)
    np.testing.assert_allclose(found, means @ gradients.T / lengths, atol=1e-9)


def test_a_gradient_of_zero_is_like_no_other() -> None:
    gradients = np.array([[1.0, 0.0], [0.0, 0.0]])
    assert cosines(gradients @ gradients.T, np.array([[0], [1]])).tolist() == [[1, 0], [0, 0]]


@pytest.mark.parametrize("samples", [1, 2, 3])
def test_the_classes_of_a_batch_have_the_highest_odds(samples: int) -> None:
    """Gradients of a class point the same way, give or take."""
    random = np.random.default_rng(0)
    labels = np.arange(60) % 5

    def gradients(of: np.ndarray) -> np.ndarray:
        return np.eye(5)[of] @ np.eye(5, 20) + 0.1 * random.normal(size=(len(of), 20))

    held = np.stack([random.permutation(5)[:samples] for _ in range(7)])
    observed = gradients(held.ravel()).reshape(7, samples, 20).mean(1)
    every = np.concatenate([gradients(labels), observed])
    classes, odds = class_log_odds(every @ every.T, 10 + labels, samples, seed=1)
    assert classes.tolist() == [10, 11, 12, 13, 14]
    best = np.argsort(-odds, axis=1)[:, :samples]
    assert np.array_equal(np.sort(best, axis=1), np.sort(held, axis=1))


def test_of_one_class_nothing_is_learnt() -> None:
    classes, odds = class_log_odds(np.eye(5), np.array([3, 3, 3]), 1, seed=0)
    assert classes.tolist() == [3]
    assert odds.shape == (2, 1)
