"""Property and membership inference, and its computations."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gleak.attacks.melis import class_log_odds, cosines, inner_products
from gleak.attacks.observation import Observation
from gleak.core.errors import IncompatibleError
from gleak.core.registry import parse
from gleak.data.base import DatasetSpec
from gleak.models.stochastic import deterministic_copy
from tests.attacks.cases import Make

MELIS = parse("attack", "melis")


def with_auxiliary(seen: Observation, inputs: np.ndarray, labels: np.ndarray) -> Observation:
    """The same victims before an attacker with these samples of his own."""
    granted = {"auxiliary_inputs": inputs, "auxiliary_labels": labels}
    tensors = {name: torch.from_numpy(values)[None] for name, values in granted.items()}
    return replace(seen, granted=tensors)


@pytest.mark.parametrize("modality", ["image", "tabular"])
def test_what_is_reported_are_auxiliary_samples(make_case: Make, modality: str) -> None:
    seen, _ = make_case(MELIS, modality, client="fedsgd+batch_size=3+victims=4")
    own = seen.granted["auxiliary_inputs"][0].numpy()
    found = MELIS.reconstruct(seen)
    gaps = np.abs(found.inputs[:, :, None] - own).reshape(4, 3, len(own), -1).max(3)
    assert (gaps.min(2) == 0).all()
    assert len({tuple(gap.argmin(1)) for gap in gaps}) > 1
    assert all(len(set(gap.argmin(1))) == 3 for gap in gaps)


def test_a_member_of_the_auxiliary_set_is_recognised(make_case: Make) -> None:
    seen, truth = make_case(MELIS, client="fedsgd+victims=8")
    own, labels = (seen.granted[name][0].numpy() for name in sorted(MELIS.grants))
    inputs = np.concatenate([own[:20], truth.inputs[:, 0], own[20:]])
    held = np.concatenate([labels[:20], truth.labels[:, 0], labels[20:]])
    found = MELIS.reconstruct(with_auxiliary(seen, inputs, held))
    assert np.array_equal(found.labels, truth.labels)
    assert np.array_equal(found.inputs, truth.inputs)
    np.testing.assert_allclose(found.objective, 0, atol=1e-5)
    assert found.converged.all()


@pytest.mark.parametrize(("samples", "least"), [(1, 0.9), (2, 0.75)])
def test_labels_are_mostly_right(make_case: Make, samples: int, least: float) -> None:
    client = f"fedsgd+labels=unique+batch_size={samples}+victims=12"
    seen, truth = make_case(MELIS, client=client)
    found = np.sort(MELIS.reconstruct(seen).labels, axis=1)
    assert (found == np.sort(truth.labels, axis=1)).mean() >= least


def test_no_label_repeats_until_all_classes_are_there(make_case: Make) -> None:
    seen, _ = make_case(MELIS, client="fedsgd+batch_size=6+victims=2")
    found = MELIS.reconstruct(seen).labels
    for labels in found:
        assert sorted(labels[:4]) == [0, 1, 2, 3]
        assert labels[4:].tolist() == labels[:2].tolist()


def test_content_is_of_the_inferred_classes_as_far_as_there_is_any(make_case: Make) -> None:
    seen, _ = make_case(MELIS, client="fedsgd+batch_size=2+victims=5+labels=unique")
    own, labels = (seen.granted[name][0].numpy() for name in sorted(MELIS.grants))
    found = MELIS.reconstruct(seen)
    for inputs, inferred in zip(found.inputs, found.labels, strict=True):
        at = [int(np.flatnonzero((own == one).all((1, 2, 3)))[0]) for one in inputs]
        assert set(labels[at]) <= set(inferred)


def test_a_gradient_of_zero_has_not_converged(make_case: Make) -> None:
    seen, _ = make_case(MELIS)
    update = {name: value.clone() for name, value in seen.update.items()}
    for value in update.values():
        value[1] = 0
    found = MELIS.reconstruct(replace(seen, update=update))
    assert found.converged.tolist() == [True, False, True]
    assert found.objective[1] == 1


def test_without_auxiliary_samples_it_does_not_fit(
    make_case: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, truth = make_case(MELIS)
    none = with_auxiliary(seen, truth.inputs[:0, 0], truth.labels[:0, 0])
    with pytest.raises(IncompatibleError, match="training samples, and there are none"):
        MELIS.reconstruct(none)
    digits: DatasetSpec = parse("dataset", "digits")
    specs = (parse("model", "lenet"), parse("client", "fedsgd"))
    MELIS.check(digits, *specs)
    monkeypatch.setattr(type(digits), "sizes", {"train": 0, "test": 450})
    with pytest.raises(IncompatibleError, match="melis on digits: auxiliary samples"):
        MELIS.check(digits, *specs)


@pytest.mark.parametrize("model", ["lenet+width=4", "lenet+precode=3+beta=1"])
def test_inner_products_are_those_of_the_gradients(make_case: Make, model: str) -> None:
    """Of a variational block those that an attacker computes, who does not know what is drawn."""
    seen, _ = make_case(MELIS, model=model)
    inputs = torch.rand(11, *seen.input_shape, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(11) % 4
    network = deterministic_copy(seen.model).requires_grad_(True)
    samples = zip(inputs.split(1), labels.split(1), strict=True)
    computed = [parse("client", "fedsgd").compute(network, *sample) for sample in samples]
    network.requires_grad_(False)
    values = [
        torch.cat([*(own[name] for own in computed), update[:, 0]]).flatten(1)
        for name, update in seen.update.items()
    ]
    gradients = torch.cat(values, 1).numpy()
    found = inner_products(seen, inputs, labels)
    np.testing.assert_allclose(found, gradients @ gradients.T, rtol=1e-3, atol=1e-5)


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
