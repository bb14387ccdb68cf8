"""Federated training, beside plain loops over clients."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Generator, Tensor, nn
from torch.nn import functional

from gleak.artifacts.dataset import Dataset
from gleak.artifacts.encodings import Dense
from gleak.core.errors import IncompatibleError
from gleak.core.registry import load, parse
from gleak.defenses.base import DefenseSpec, Memory
from gleak.training.base import test_accuracy as accuracy
from gleak.training.federated import Federated, Federation, partition


def federated(fields: str = "") -> Federated:
    return parse("training", f"federated{fields}")


def test_at_least_one_client_is_chosen_and_passes_over_the_data_are_counted() -> None:
    for clients, fraction, chosen in ((100, 1, 100), (7, 0.5, 4), (3, 0.01, 1), (1, 0.1, 1)):
        assert Federated(clients=clients, fraction=fraction).chosen == chosen
    spec = Federated(clients=10, fraction=0.5, rounds=4, local_steps=3, batch_size=20)
    assert spec.epochs_of_data(1000) == pytest.approx(4 * 5 * 3 * 20 / 1000)
    assert spec.epochs_of_data(100) == pytest.approx(4 * 5 * 3 * 10 / 100)


SEED = 3


class Counting(DefenseSpec):
    """Sends nothing but zeros, and counts in its memory how often it was asked."""

    name: ClassVar[str] = "counting"
    streams: ClassVar[list[int]] = []

    def protect(
        self, update: dict[str, Tensor], generator: Generator, memory: Memory
    ) -> dict[str, Dense]:
        memory["count"] = memory.get("count", torch.zeros(())) + 1
        self.streams.append(generator.initial_seed())
        return {
            name: Dense(torch.zeros_like(value).numpy()[None]) for name, value in update.items()
        }


@pytest.fixture
def network() -> nn.Module:
    """A network with running statistics."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Flatten(), nn.Linear(192, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4)
        )


def steps(network: nn.Module, inputs: Tensor, labels: Tensor, lr: float, count: int) -> list[float]:
    """Full-batch gradient descent as torch does it; the loss before each step."""
    network.train()
    optimizer = torch.optim.SGD(network.parameters(), lr=lr)
    losses = []
    for _ in range(count):
        optimizer.zero_grad()
        loss = functional.cross_entropy(network(inputs), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def samples(dataset: Dataset, share: object = slice(None)) -> tuple[Tensor, Tensor]:
    inputs, labels = dataset.samples("train", share), dataset.train_labels[share]
    return torch.from_numpy(inputs), torch.from_numpy(labels)


def states(*networks: nn.Module) -> Iterator[tuple[Tensor, ...]]:
    return zip(*(network.state_dict().values() for network in networks), strict=True)


def test_a_round_is_federated_averaging(network: nn.Module, images: Dataset) -> None:
    """The oracle averages the clients' parameters and running statistics, in two rounds."""
    spec = federated("+clients=3+fraction=1+local_steps=4")
    federation = Federation(network, images, spec, SEED)
    sizes = [len(client.share) for client in federation.clients]
    assert sorted(sizes) == [13, 13, 14]
    for number in range(2):
        alone = [deepcopy(network) for _ in sizes]
        losses = [
            sum(steps(one, *samples(images, client.share), spec.lr, 4)) / 4
            for one, client in zip(alone, federation.clients, strict=True)
        ]
        loss = federation.run_round(number)
        assert loss == pytest.approx(np.average(losses, weights=sizes), rel=1e-5)
        for ours, *theirs in states(network, *alone):
            mean = sum(n * value for n, value in zip(sizes, theirs, strict=True)) / 40
            torch.testing.assert_close(ours, mean.to(ours.dtype), atol=1e-5, rtol=1e-4)


def test_mini_batches_go_through_all_samples_of_a_client(images: Dataset) -> None:
    """Of a linear loss the gradient of a pass is that of the whole, whatever the order."""

    class Linear(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(192, 4))

        def forward(self, inputs: Tensor) -> Tensor:
            return inputs.flatten(1) @ self.weight

    spec = federated("+clients=1+fraction=1+local_steps=4+batch_size=10+lr=1e-6")
    network, whole = Linear(), Linear()
    Federation(network, images, spec, SEED).run_round(0)
    steps(whole, *samples(images), 4e-6, 1)
    torch.testing.assert_close(network.weight, whole.weight, atol=1e-9, rtol=1e-3)


def test_what_is_sent_is_on_the_scale_of_a_gradient(images: Dataset) -> None:
    """Noise moves the parameters by its own strength times the distance of a round."""
    network = nn.Sequential(nn.Flatten(), nn.Linear(192, 500))
    quiet = deepcopy(network)
    for one, defense in ((quiet, "none"), (network, "gaussian~std=3")):
        fields = f"+clients=4+fraction=1+local_steps=5+lr=0.01+defense={defense}"
        Federation(one, images, federated(fields), SEED).run_round(0)
    moved = network[1].weight - quiet[1].weight
    assert moved.std().item() == pytest.approx(3 * 0.01 * 5 / 4**0.5, rel=0.02)


@pytest.mark.parametrize("steps", [1, 5])
def test_a_frameworks_filter_is_applied_to_differences_of_weights(
    steps: int, images: Dataset
) -> None:
    """The only client's weights move by the norm to which their difference is clipped."""
    network = nn.Sequential(nn.Flatten(), nn.Linear(192, 5))
    before = nn.utils.parameters_to_vector(network.parameters()).detach().clone()
    defense = "flower_clipping~norm=1e-3"
    fields = f"+clients=1+fraction=1+local_steps={steps}+lr=0.05+defense={defense}"
    Federation(network, images, federated(fields), SEED).run_round(0)
    moved = nn.utils.parameters_to_vector(network.parameters()).detach() - before
    assert moved.norm().item() == pytest.approx(1e-3, rel=1e-3)


def test_noise_of_a_mean_is_added_once_in_a_round(images: Dataset) -> None:
    """Beside the round without noise, its deviation is noise_multiplier norm / clients."""
    network = nn.Sequential(nn.Flatten(), nn.Linear(192, 500))
    quiet = deepcopy(network)
    for one, multiplier in ((quiet, 0), (network, 3)):
        defense = f"flower_central_dp~clients=4~norm=0.02~noise_multiplier={multiplier}"
        fields = f"+clients=4+fraction=1+local_steps=5+lr=0.01+defense={defense}"
        Federation(one, images, federated(fields), SEED).run_round(0)
    moved = network[1].weight - quiet[1].weight
    assert moved.std().item() == pytest.approx(3 * 0.02 / 4, rel=0.02)


STRONG = {
    "flare_exclude": "flare_exclude~pattern=bias",
    "flare_percentile": "flare_percentile~percentile=90",
    "flower_clipping": "flower_clipping~norm=1e-3",
}
"""Defences that change nothing by default, or only larger updates."""


@pytest.mark.parametrize("name", sorted(load("defense")))
def test_every_defence_has_a_part_in_training(name: str, images: Dataset) -> None:
    """Of one round with two clients, in the same order of samples.

    The server averages what it is sent in any case, so a sum is nothing new to it.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = nn.Sequential(nn.Flatten(), nn.Linear(192, 6), nn.ReLU(), nn.Linear(6, 4))
    plain = deepcopy(network)
    fields = "+clients=2+fraction=1+local_steps=2+lr=0.01+defense="
    for one, defense in ((plain, "none"), (network, STRONG.get(name, name))):
        Federation(one, images, federated(f"{fields}{defense}"), SEED).run_round(0)
    assert all(value.isfinite().all() for value in network.parameters())
    same = [torch.equal(ours, theirs) for ours, theirs in states(network, plain)]
    assert all(same) == (name in ("none", "secure_aggregation"))


def test_samples_are_clipped_at_every_step(images: Dataset) -> None:
    """The oracle goes from sample to sample and step to step."""
    network = nn.Sequential(nn.Flatten(), nn.Linear(192, 4))
    plain, bound = deepcopy(network), 0.5
    inputs, labels = samples(images)
    for _ in range(3):
        slopes = [torch.zeros_like(value) for value in plain.parameters()]
        for image, label in zip(inputs, labels, strict=True):
            loss = functional.cross_entropy(plain(image[None]), label[None])
            gradients = torch.autograd.grad(loss, list(plain.parameters()))
            for total, gradient in zip(slopes, gradients, strict=True):
                total += gradient / max(1.0, float(gradient.norm()) / bound) / len(labels)
        with torch.no_grad():
            for value, slope in zip(plain.parameters(), slopes, strict=True):
                value -= 0.2 * slope
    defense = f"fedcdp~snr=none~sigma=0~clip={bound}"
    fields = f"+clients=1+fraction=1+local_steps=3+batch_size=40+lr=0.2+defense={defense}"
    Federation(network, images, federated(fields), SEED).run_round(0)
    for ours, theirs in states(network, plain):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)


def test_every_client_keeps_its_memory_and_draws_anew(network: nn.Module, images: Dataset) -> None:
    Counting.streams.clear()
    before = deepcopy(network)
    spec = Federated(clients=5, fraction=0.6, local_steps=1, defense=Counting())
    federation = Federation(network, images, spec, SEED)
    for number in range(4):
        federation.run_round(number)
    counts = [int(client.memory.get("count", 0)) for client in federation.clients]
    assert sum(counts) == 4 * 3
    assert max(counts) > 1
    assert len(set(counts)) > 1
    assert len(set(Counting.streams)) == 12
    for ours, theirs in zip(network.parameters(), before.parameters(), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("alpha", ["none", "1"])
def test_accuracy_rises_on_digits(alpha: str) -> None:
    digits = parse("dataset", "digits").load(Path(), 0)
    network = parse("model", "mlp+activation=relu").build(digits.shape, digits.classes)
    spec = federated(f"+clients=10+fraction=0.5+rounds=8+lr=0.3+alpha={alpha}")
    history = spec.train(network, digits, SEED)
    assert len(history.train_loss) == len(history.test_accuracy) == 8
    assert history.train_loss[-1] < history.train_loss[0] / 2
    assert history.test_accuracy[0] + 0.2 < history.test_accuracy[-1] > 0.8
    assert history.test_accuracy[-1:] == accuracy(network, digits)


def test_a_training_that_diverges_is_refused(images: Dataset) -> None:
    network = parse("model", "mlp+activation=relu").build(images.shape, images.classes)
    with pytest.raises(IncompatibleError, match=r"diverges on .*: the loss is .*a smaller lr"):
        federated("+clients=2+rounds=9+lr=1e30").train(network, images, SEED)


CLASSES = 10
LABELS = np.random.default_rng(0).permutation(np.arange(2000) % CLASSES)


def distance(shares: list[np.ndarray]) -> float:
    """Mean total variation between the classes of a client and those of all; 0 for equal ones."""
    everyone = np.bincount(LABELS) / len(LABELS)
    own = [np.bincount(LABELS[share], minlength=CLASSES) / len(share) for share in shares]
    return float(np.mean([np.abs(classes - everyone).sum() / 2 for classes in own]))


@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=60),
    st.integers(1, 60),
    st.none() | st.floats(1e-3, 1e3),
    st.integers(0, 2**32),
)
def test_every_sample_is_held_once_and_every_client_holds_one(
    labels: list[int], clients: int, alpha: float | None, seed: int
) -> None:
    clients = min(clients, len(labels))
    shares = partition(np.array(labels), clients, alpha, np.random.default_rng(seed))
    assert len(shares) == clients
    assert min(map(len, shares)) >= 1
    assert sorted(np.concatenate(shares).tolist()) == list(range(len(labels)))


def test_classes_are_the_more_uneven_the_smaller_alpha_is() -> None:
    *by_alpha, equal = (
        partition(LABELS, 30, alpha, np.random.default_rng(0)) for alpha in (0.01, 1, 100, None)
    )
    assert {len(share) for share in equal} == {66, 67}
    assert not np.array_equal(np.concatenate(equal), np.arange(len(LABELS)))
    distances = [distance(shares) for shares in by_alpha]
    assert distances[0] > 0.7
    assert distances == sorted(distances, reverse=True)
    assert distances[-1] < 2 * distance(equal)
