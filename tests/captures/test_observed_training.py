"""What PyTorch's hooks see of a training, replayed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from gleak.captures.observed_training import ObservedTraining, observed
from gleak.captures.round_folder import read_state
from gleak.core.errors import IncompatibleError
from gleak.core.registry import find
from gleak.core.spec import build_spec


def network() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.ReLU(), nn.Linear(5, 3))


def train(model: nn.Module, optimizer: Any, inputs: Tensor, labels: Tensor, size: int) -> None:
    """A loop as practitioners write it, which validates before."""
    loss = nn.CrossEntropyLoss()
    with torch.no_grad():
        loss(model(inputs), labels)
    for x, y in zip(inputs.split(size), labels.split(size), strict=True):
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()


def samples() -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(1)
    return 2 * torch.rand(8, 3, 2, 2, generator=random) - 1, torch.arange(8) % 3


def to_intensity(inputs: Tensor) -> Tensor:
    return (inputs + 1) / 2


OPTIMIZERS: list[tuple[type, dict[str, Any]]] = [
    (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    (torch.optim.SGD, {"lr": 0.1, "momentum": 0.5, "nesterov": True, "weight_decay": 0.01}),
    (torch.optim.AdamW, {"lr": 0.01, "betas": (0.8, 0.99)}),
]


@pytest.mark.parametrize(("kind", "options"), OPTIMIZERS)
def test_a_training_is_replayed_by_what_is_recorded(
    kind: type, options: dict[str, Any], tmp_path: Path
) -> None:
    model, before = network(), network()
    with observed(to_intensity) as seen:
        train(model, kind(model.parameters(), **options), *samples(), size=4)
    fields = seen.fields()
    seen.write_samples(tmp_path / "truth")
    truth = read_state(tmp_path / "truth")
    assert (fields["local_steps"], fields["batch_size"], fields["mini_batch"]) == ("2", "8", "4")
    assert "state" not in fields
    client = build_spec(find("client", "captured"), {**fields, "sends": "weights"})
    sent = client.compute(before, 2 * truth["inputs"] - 1, truth["labels"])
    for (name, value), after in zip(before.named_parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(sent[name][0], after - value, rtol=1e-4, atol=1e-7)


def test_rates_that_change_and_state_that_was_kept_are_recorded() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    train(model, optimizer, *samples(), size=8)
    with observed() as seen:
        for _ in range(2):
            train(model, optimizer, *samples(), size=8)
            schedule.step()
    fields = seen.fields()
    assert fields["optimizer"] == "sgd~momentum=0.9"
    assert (fields["local_lr"], fields["schedule"]) == ("0.1", "step~factor=0.5")
    assert fields["state"] == "kept"
    assert not seen.has_samples
    assert "batch_size" not in fields, "of samples nothing is seen unless they are asked for"


def test_modules_of_a_loader_are_neither_networks_nor_losses(tmp_path: Path) -> None:
    model, loss, (inputs, labels) = network(), nn.CrossEntropyLoss(), samples()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with observed(to_intensity) as seen:
        for x, y in zip(inputs.split(4), labels.split(4), strict=True):
            batch = torch.stack([nn.Identity()(image) for image in x])
            loss(model(batch), y).backward()
            optimizer.step()
            batch.zero_()  # as loaders do that fill one array again and again
    assert seen.has_samples and seen.sizes == [4, 4]
    seen.write_samples(tmp_path / "truth")
    torch.testing.assert_close(2 * read_state(tmp_path / "truth")["inputs"] - 1, samples()[0])


def test_steps_have_one_size_but_for_a_last_smaller_batch(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = network()
    with observed(to_intensity) as seen:
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), *samples(), size=5)
    assert seen.sizes == [5, 3]
    assert seen.fields()["batch_size"] == "8"
    assert seen.fields()["mini_batch"] == "5"
    seen.sizes = [5, 3, 5, 3]
    assert not seen.fields().keys() & {"batch_size", "mini_batch"}
    assert "5, 3, 5, 3" in caplog.text


def test_labels_of_a_loss_that_is_no_module_are_not_seen() -> None:
    model, (inputs, labels) = network(), samples()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with observed(to_intensity) as seen:
        functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    assert not seen.has_samples
    assert seen.fields()["batch_size"] == "8"


def test_samples_of_which_a_step_had_no_labels_are_not_written() -> None:
    model, (inputs, labels) = network(), samples()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with observed(to_intensity) as seen:
        train(model, optimizer, inputs, labels, size=8)
        functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    assert seen.fields()["batch_size"] == "16"
    assert not seen.has_samples


def test_nothing_is_seen_outside_of_the_block() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with observed(to_intensity) as seen:
        pass
    train(model, optimizer, *samples(), size=8)
    assert seen == ObservedTraining(to_intensity)
    with pytest.raises(IncompatibleError, match=r"no step of a torch.optim optimizer was seen"):
        seen.fields()


def test_several_optimizers_are_named() -> None:
    with observed() as seen:
        for kind in (torch.optim.SGD, torch.optim.Adam):
            model = network()
            train(model, kind(model.parameters(), lr=0.1), *samples(), size=8)
    with pytest.raises(IncompatibleError, match=r"2 optimizers took steps \(SGD, Adam\)"):
        seen.fields()


def test_a_block_that_fails_leaves_no_hooks() -> None:
    model = network()
    with pytest.raises(ZeroDivisionError), observed(to_intensity) as seen:
        raise ZeroDivisionError
    train(model, torch.optim.SGD(model.parameters(), lr=0.1), *samples(), size=8)
    assert not seen.rates
