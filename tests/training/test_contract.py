"""What holds for every way of training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from gleak.artifacts.dataset import Dataset
from gleak.core.errors import IncompatibleError
from gleak.core.registry import load, parse
from gleak.models import batching
from gleak.models.layers import Penalised
from gleak.runtime.checkpointing import Journal
from gleak.training.base import InitialisedSpec
from gleak.training.base import test_accuracy as accuracy
from gleak.training.central import Central
from gleak.training.train_model import train_model

Stops = Callable[[Callable[[], bytes]], tuple[bytes, int]]
NAMES = [name for name, cls in load("training").items() if issubclass(cls, InitialisedSpec)]
LITTLE = {"epochs": 2, "clients": 4, "rounds": 2, "local_steps": 2, "weights": "own.pth"}

pytestmark = pytest.mark.usefixtures("saved")


def short(name: str) -> str:
    """The spec with little to do."""
    fields = [key for key in load("training")[name].model_fields if key in LITTLE]
    return "+".join([name, *(f"{key}={LITTLE[key]}" for key in fields)])


def trained(spec: str, dataset: Dataset, seed: int = 3) -> tuple[nn.Module, object]:
    network = parse("model", "lenet+width=4").build(dataset.shape, dataset.classes)
    return network, parse("training", spec).train(network, dataset, seed)


@pytest.mark.parametrize("name", NAMES)
def test_parameters_follow_from_the_seed_alone(name: str, images: Dataset) -> None:
    """And torch's own random stream is left alone."""
    first, again, other = (trained(short(name), images, seed)[0] for seed in (3, 3, 4))
    for one, two, three in zip(*(net.parameters() for net in (first, again, other)), strict=True):
        assert torch.equal(one, two)
        assert torch.equal(one, three) == (name == "pretrained")
    network = parse("model", "lenet+width=4").build(images.shape, images.classes)
    before = torch.get_rng_state()
    parse("training", short(name)).train(network, images, 0)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("name", "model"),
    [
        *((name, "lenet+width=4") for name in [*NAMES, "federated+defense=threshold"]),
        ("central", "lenet+width=4+dropout=0.5"),
    ],
)
def test_broken_off_at_every_step_it_comes_to_the_same(
    name: str, model: str, images: Dataset, tmp_path: Path, stops: Stops
) -> None:
    """The first run is asked to stop at its first occasion, the next at its second, and so on."""
    head, _, fields = name.partition("+")
    spec = parse("training", "+".join(filter(None, [short(head), fields])))
    images.write(tmp_path / "dataset.h5")

    def attempt(folder: str) -> bytes:
        output = tmp_path / folder / "model.h5"
        dataset = tmp_path / "dataset.h5"
        train_model(parse("model", model), spec, dataset, output, seed=3, device="cpu")
        assert [path.name for path in output.parent.iterdir()] == ["model.h5"]
        return output.read_bytes()

    whole = attempt("whole")
    found, broken_off = stops(lambda: attempt("broken"))
    assert found == whole
    assert bool(broken_off) == (head in ("central", "federated"))


def test_central_training_learns(images: Dataset) -> None:
    network, history = trained("central+batch_size=8+epochs=30+lr=0.02", images)
    assert len(history.train_loss) == len(history.test_accuracy) == 30
    assert history.train_loss[-1] < history.train_loss[0] / 2
    assert history.test_accuracy[-1] > 0.8
    assert history.test_accuracy[-1:] == accuracy(network, images)


@pytest.mark.parametrize(
    ("spec", "samples", "fault"),
    [
        ("central", 0, "training central: tiny has no samples in its train split"),
        ("federated", 0, r"clients=100 is more than the 0 samples in the train split of tiny"),
        ("federated+clients=11", 10, r"clients=11 is more than the 10 samples"),
    ],
)
def test_too_few_samples_are_refused_before_any_work(
    images: Dataset, spec: str, samples: int, fault: str
) -> None:
    few = replace(
        images,
        train_inputs=images.train_inputs[:samples],
        train_labels=images.train_labels[:samples],
    )
    with pytest.raises(IncompatibleError, match=fault):
        trained(spec, few)


def test_a_dataset_of_known_size_is_judged_before_it_is_read() -> None:
    digits = parse("dataset", "digits")
    parse("training", "federated+clients=1347").check(digits)
    with pytest.raises(IncompatibleError, match="clients=1348 is more than the 1347 samples"):
        parse("training", "federated+clients=1348").check(digits)
    parse("training", "federated+clients=1348").check(parse("dataset", "folder"))


def test_accuracy_counts_right_answers_in_batches(
    images: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Answers(nn.Module):
        """Says class 1 to all, and whether it was asked in evaluation mode."""

        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(4))

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            assert not self.training
            return self.weight + nn.functional.one_hot(torch.ones(len(inputs)).long(), 4)

    monkeypatch.setattr(batching, "VALUES", 7 * 3 * 8 * 8)
    network = Answers()
    assert accuracy(network, images) == [0.25]
    assert network.training


def test_accuracy_is_left_out_without_test_samples(images: Dataset) -> None:
    empty = replace(images, test_inputs=images.test_inputs[:0], test_labels=np.zeros(0, int))
    assert trained("untrained", empty)[1].test_accuracy == []


class Costly(Penalised):
    """The inputs as they are, at the cost of their mean."""

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs

    def penalty(self, inputs: Tensor) -> Tensor:
        return inputs.square().mean(1)


def test_penalties_of_layers_are_minimised_with_the_cross_entropy(images: Dataset) -> None:
    """The first of its steps, which takes all samples, has the loss of the first parameters."""
    features = images.samples("train", slice(None))[0].size
    network = nn.Sequential(nn.Flatten(), nn.Linear(features, images.classes), Costly())
    inputs = torch.from_numpy(images.samples("train", slice(None)))
    labels = torch.from_numpy(images.labels("train"))
    with torch.no_grad():
        logits = network(inputs)
    expected = functional.cross_entropy(logits, labels) + logits.square().mean()
    spec = Central(epochs=1, lr=0.1, batch_size=len(labels))
    history = spec.fit(network, images, 0, Journal().part())
    torch.testing.assert_close(torch.tensor(history.train_loss[0]), expected)
