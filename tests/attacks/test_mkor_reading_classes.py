"""Classes told apart in the gradient of crafted dense layers."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from gleak.attacks.mkor_reading import ClassFeatures, read_classes, whole_counts
from gleak.core.registry import parse
from gleak.crafting.mkor import craft_classes, path_gains
from gleak.models.base import ACTIVATIONS, activation_layer
from gleak.models.chain import decompose
from gleak.models.differentiation import sample_losses

CLASSES, FEATURES, WIDTH = 4, 12, 40
REPEATED = (3, 0, 2, 1, 3, 2, 3)
each_activation = pytest.mark.parametrize("activation", ACTIVATIONS)
each_depth = pytest.mark.parametrize("layers", [2, 3])


@dataclass
class Batch:
    """A crafted network of dense layers, a batch of features, and what the server knows."""

    network: nn.Sequential
    secret: dict[str, np.ndarray]
    features: Tensor
    labels: Tensor

    def read(self, loss: str) -> ClassFeatures:
        """Recover the features of each class from the gradient."""
        targets = nn.functional.one_hot(self.labels, CLASSES).float()
        mean = sample_losses(loss, self.network(self.features), targets).mean()
        first = self.network[0]
        gradient = torch.autograd.grad(mean, [first.weight, first.bias])
        return read_classes(*gradient, self.secret, len(self.labels), loss)

    @property
    def counts(self) -> list[int]:
        """Number of samples of each class."""
        return self.labels.bincount(minlength=CLASSES).tolist()

    def errors(self, found: ClassFeatures) -> dict[int, float]:
        """Return the largest error of the mean of each class that was found."""
        return {
            label: float(
                (found.means[label] - self.features[self.labels == label].mean(0)).abs().max()
            )
            for label in range(CLASSES)
            if found.counts[label]
        }


def batch(
    crafting: str = "mkor",
    activation: str = "relu",
    layers: int = 2,
    labels: tuple[int, ...] = REPEATED,
    sink: int | None = None,
    dropout: float = 0.0,
) -> Batch:
    torch.manual_seed(layers)
    sizes = pairwise([FEATURES, *[WIDTH] * (layers - 1), CLASSES])
    *parts, _, _ = (
        part
        for pair in sizes
        for part in (nn.Linear(*pair), activation_layer(activation), nn.Dropout(dropout))
    )
    network = nn.Sequential(*parts).eval()
    made_up, spec = torch.rand(64, FEATURES), parse("crafting", crafting)
    random = torch.Generator().manual_seed(0)
    paths = craft_classes(decompose(network).dense, made_up, spec, random)
    if sink is not None:
        network[-1].bias.data[sink] += 12
    secret = {
        "rows": paths.rows.numpy(),
        "gains": path_gains(decompose(network).dense, made_up, paths.rows).numpy(),
        "pairs": np.array([int(paths.pairs)]),
        "kept": np.array([(1 - dropout) ** (layers - 1)]),
        "chances": network(made_up).softmax(1).mean(0).detach().numpy(),
    }
    return Batch(network, secret, torch.rand(len(labels), FEATURES), torch.tensor(labels))


@each_activation
@each_depth
@pytest.mark.parametrize(
    "crafting", ["mkor+noise=0", "mkor", "mkor+alpha=-2.5", "mkor+hiding=naive", "mkor+paths=3"]
)
def test_raw_likelihoods_tell_the_mean_of_every_class_and_its_count(
    activation: str, layers: int, crafting: str
) -> None:
    """Behind curved activations samples of one class do not weigh exactly the same."""
    held = batch(crafting, activation, layers)
    found = held.read("nll_raw")
    assert found.counts.tolist() == held.counts
    errors = held.errors(found)
    exact = 1e-5 if crafting in ("mkor+noise=0", "mkor+hiding=naive") else 2e-3
    assert max(errors[0], errors[1]) < exact
    assert max(errors.values()) < (0.1 if activation in ("sigmoid", "tanh") else exact)


def test_absent_classes_are_said_to_be_absent() -> None:
    held = batch(labels=(2, 2, 0))
    found = held.read("nll_raw")
    assert found.counts.tolist() == [1, 0, 2, 0]
    assert max(held.errors(found).values()) < 1e-3


@each_activation
@each_depth
@pytest.mark.parametrize("labels", [(0, 1, 2, 3), REPEATED])
@pytest.mark.parametrize("sink", [0, 3])
def test_with_a_sink_cross_entropy_tells_all_other_classes(
    activation: str, layers: int, labels: tuple[int, ...], sink: int
) -> None:
    held = batch("mkor", activation, layers, labels, sink)
    found = held.read("cross_entropy")
    expected = held.counts
    expected[sink] = 0
    assert found.counts.tolist() == expected
    assert max(held.errors(found).values()) < (0.1 if activation in ("sigmoid", "tanh") else 5e-3)


@each_activation
@each_depth
def test_a_class_that_is_absent_stands_in_for_a_sink(activation: str, layers: int) -> None:
    """It shows the batch's mean; what the softmax added is less well known than with a sink."""
    held = batch("mkor", activation, layers, labels=(0, 1, 1, 3, 3, 3))
    found = held.read("cross_entropy")
    assert found.counts.tolist() == held.counts
    errors = held.errors(found)
    assert max(errors.values()) < 0.15
    means = {label: found.means[label] for label in errors}
    overall = torch.stack([*means.values()]).mean(0)
    assert all((mean - overall).abs().max() > 0.2 for mean in means.values())


@pytest.mark.parametrize("labels", [(2,), (0, 3), (0, 1, 3)])
def test_cross_entropy_hides_small_batches_least(labels: tuple[int, ...]) -> None:
    """However little of the softmax goes to the classes that are absent."""
    held = batch("mkor", labels=labels)
    found = held.read("cross_entropy")
    assert found.counts.tolist() == held.counts
    assert max(held.errors(found).values()) < 0.1


@each_activation
def test_one_sample_of_each_class_and_no_sink_tell_nothing(activation: str) -> None:
    held = batch("mkor", activation, labels=(0, 1, 2, 3))
    assert held.read("cross_entropy").counts.tolist() == [0] * CLASSES
    assert held.read("nll_raw").counts.tolist() == [1] * CLASSES


def test_where_neurons_are_dropped_parallel_paths_find_more_classes() -> None:
    """A class with one sample is read exactly, if any of its paths is left."""
    shares = []
    for paths in (1, 4):
        held = batch(f"mkor+noise=0+paths={paths}", labels=(0, 1, 2, 3), dropout=0.5)
        held.network.train()
        torch.manual_seed(0)
        found = [held.read("nll_raw") for _ in range(50)]
        assert max(error for each in found for error in held.errors(each).values()) < 1e-4
        shares.append(float(torch.stack([each.counts > 0 for each in found]).float().mean()))
    assert shares[0] == pytest.approx(0.5, abs=0.1)
    assert shares[1] > 0.75


def test_the_gradient_is_left_as_it_was() -> None:
    held = batch(sink=1)
    weight, bias = torch.rand(WIDTH, FEATURES), torch.rand(WIDTH)
    copies = weight.clone(), bias.clone()
    read_classes(weight, bias, held.secret, 4, "cross_entropy")
    assert torch.equal(weight, copies[0])
    assert torch.equal(bias, copies[1])


@pytest.mark.parametrize("loss", ["nll_raw", "cross_entropy"])
@pytest.mark.parametrize("level", [0.0, 1.0, 1e12])
def test_a_gradient_that_says_nothing_gives_counts_all_the_same(loss: str, level: float) -> None:
    held = batch()
    random = torch.Generator().manual_seed(0)
    weight = level * torch.randn(WIDTH, FEATURES, generator=random)
    bias = level * torch.randn(WIDTH, generator=random)
    found = read_classes(weight, bias, held.secret, 5, loss)
    assert found.means.isfinite().all()
    assert (found.counts >= 0).all()
    assert found.counts.sum() <= 5
    assert level or not found.counts.any()


@given(
    st.lists(
        st.floats(allow_nan=True, allow_infinity=True, width=32) | st.floats(-2, 9, width=32),
        min_size=1,
        max_size=12,
    ),
    st.integers(1, 12),
)
def test_whole_counts_never_exceed_the_batch(counts: list[float], size: int) -> None:
    found = whole_counts(torch.tensor(counts), size)
    assert found.dtype == torch.long
    assert (found >= 0).all()
    assert found.sum() <= size
    assert not found[~(torch.tensor(counts) >= 0.5)].any()


@given(st.lists(st.integers(0, 5), min_size=1, max_size=12).filter(any), st.integers(0, 2**31))
def test_counts_that_are_nearly_whole_are_rounded(counts: list[int], seed: int) -> None:
    random = torch.Generator().manual_seed(seed)
    noise = 0.49 * (2 * torch.rand(len(counts), generator=random) - 1)
    assert whole_counts(torch.tensor(counts) + noise, sum(counts)).tolist() == counts


def test_the_least_certain_samples_are_given_up() -> None:
    assert whole_counts(torch.tensor([0.6, 0.9, 1.7]), 3).tolist() == [0, 1, 2]
    assert whole_counts(torch.tensor([0.6, 0.9, 1.7]), 2).tolist() in ([0, 1, 1], [0, 0, 2])
