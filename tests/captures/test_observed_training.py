"""What PyTorch's hooks see of a training, replayed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.module import _has_any_global_hook

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


class Parts(nn.Module):
    """Network whose parts a training calls one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.BatchNorm1d(5))
        self.head = nn.Linear(5, 3)


def test_samples_are_counted_where_the_network_begins(tmp_path: Path) -> None:
    model, loss, (inputs, labels) = Parts(), nn.CrossEntropyLoss(), samples()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with observed(to_intensity) as seen:
        for x, y in zip(inputs.split(4), labels.split(4), strict=True):
            loss(model.head(model.body(x)), y).backward()
            optimizer.step()
    fields = seen.fields()
    assert (fields["batch_size"], fields["mini_batch"]) == ("8", "4")
    assert fields["batch_norm"] == "training"
    assert seen.has_samples
    seen.write_samples(tmp_path / "truth")
    torch.testing.assert_close(2 * read_state(tmp_path / "truth")["inputs"] - 1, inputs)


def test_what_a_teacher_takes_is_not_counted() -> None:
    """With its gradients enabled, and after the network; its layers' modes are its own."""
    model, teacher, loss = network(), Parts(), nn.CrossEntropyLoss()
    teacher = nn.Sequential(teacher.body, teacher.head)
    inputs, labels = samples()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    train(model, optimizer, inputs, labels, size=8)
    with observed(to_intensity) as seen:
        output = model(inputs)
        (loss(output, labels) + (output - teacher(inputs)).square().mean()).backward()
        optimizer.step()
    fields = seen.fields()
    assert (fields["batch_size"], fields["mini_batch"], fields["state"]) == ("8", "8", "kept")
    assert "batch_norm" not in fields
    assert seen.has_samples
    assert seen.state is not None
    assert "1.weight.momentum_buffer" in seen.state


def test_other_numbers_of_labels_than_of_samples_are_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model, loss, (inputs, labels) = network(), nn.CrossEntropyLoss(), samples()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with observed(to_intensity) as seen:
        train(model, optimizer, inputs, labels, size=4)
        model(inputs)
        loss(model(inputs), labels).backward()
        optimizer.step()
    assert not seen.fields().keys() & {"batch_size", "mini_batch"}
    assert not seen.has_samples
    assert "in 1 of 3 steps there were other numbers of samples than of labels" in caplog.text
    assert "first 16 samples and 8 labels" in caplog.text


@pytest.mark.parametrize("kept", [None, to_intensity])
def test_the_mode_of_batch_normalisation_is_recorded(
    kept: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """With samples or without, of which nothing is seen then."""
    layers = nn.Flatten(), nn.BatchNorm1d(12), nn.Linear(12, 5), nn.BatchNorm1d(5)
    found = []
    for modes in ((True, True), (False, False), (False, True)):
        model = nn.Sequential(*layers, nn.Linear(5, 3))
        for layer, mode in zip((model[1], model[3]), modes, strict=True):
            layer.train(mode)
        with observed(kept) as seen:
            train(model, torch.optim.SGD(model.parameters(), lr=0.1), *samples(), size=4)
        found.append(seen.fields().get("batch_norm"))
        assert bool(seen.sizes) == (kept is not None)
        assert ("1 of 2 layers of batch norm" in caplog.text) == (modes[0] != modes[1])
    assert found == ["training", None, None]


def test_without_samples_modules_are_seen_until_the_first_step_only() -> None:
    model, (inputs, labels) = network(), samples()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    assert not _has_any_global_hook()
    with observed():
        assert _has_any_global_hook()
        train(model, optimizer, inputs, labels, size=8)
        assert not _has_any_global_hook()
    assert not any(value._post_accumulate_grad_hooks for value in model.parameters())


def clipped(model: nn.Module, steps: int) -> dict[str, str]:
    """Train a model with clipping of the norm, and return what is recorded of it."""
    (inputs, labels), loss = samples(), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with observed() as seen:
        for _ in range(steps):
            optimizer.zero_grad()
            loss(model(inputs), labels).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.125)
            optimizer.step()
    return seen.fields()


def test_clipping_is_recorded_from_the_second_step_on() -> None:
    """Before the first one the parameters of its optimiser are not known."""
    assert clipped(network(), steps=3) == {
        "local_steps": "3",
        "local_lr": "0.1",
        "clip_norm": "0.125",
    }
    assert clipped(network(), steps=1) == {"local_steps": "1", "local_lr": "0.1"}


def test_frozen_parameters_of_an_optimizer_are_left_out() -> None:
    model = network()
    model[1].requires_grad_(False)
    assert clipped(model, steps=2)["clip_norm"] == "0.125"


def test_gradients_that_were_changed_otherwise_are_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model, (inputs, labels) = network(), samples()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with observed() as seen:
        for _ in range(3):
            functional.cross_entropy(model(inputs), labels).backward()
            for value in model.parameters():
                assert value.grad is not None
                value.grad += torch.rand_like(value)
            optimizer.step()
    assert not seen.fields().keys() & {"clip_norm", "clip_value"}
    assert "in 2 of 2 steps the gradient was changed" in caplog.text
