"""Local training captured where it happens, and imported from the folder of its round."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional
from torch.nn.utils import clip_grad_norm_, clip_grad_value_
from torch.optim import SGD, Adagrad, Adam, AdamW, Optimizer, RMSprop
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, LinearLR, MultiStepLR
from torch.optim.optimizer import _global_optimizer_pre_hooks

import gleak
from gleak.captures.importing import captured_cell, import_capture
from gleak.captures.locations import Captures
from gleak.captures.round_folder import RoundFolder, recorded_fields
from gleak.core.errors import ArtifactError
from tests.captures.local_training import SAMPLES, SHAPE, Truth, sgd, train

STEPS = 5


def test_a_captured_round_is_imported_with_what_it_recorded(
    model: nn.Module, truth: Truth, tmp_path: Path
) -> None:
    """Two clients in one folder; the import repeats their training from the recorded fields."""
    start = {name: value.clone() for name, value in model.state_dict().items()}
    for client, samples in {"a": truth, "b": (truth[0].flip(3), truth[1])}.items():
        model.load_state_dict(start)
        optimizer = sgd(model)
        with gleak.capture(model, optimizer, tmp_path / "round", client=client, truth=samples):
            train(model, optimizer, samples)
        train(model, optimizer, samples)
    files = RoundFolder(tmp_path / "round").files()
    fields = recorded_fields(files.sent)
    assert fields == {"batch_size": "3", "local_steps": "2", "local_lr": "0.1"}
    specs = ("mine", "digits+size=8", "lenet+width=4")
    cell = captured_cell(*specs, sends="weights", victims=2, **fields)
    captures = Captures(tmp_path / "captures")
    capture = import_capture(cell.upto("defense"), files, captures, tmp_path)
    assert capture.comparison is not None
    assert capture.comparison.error < 1e-5


Change = Callable[[nn.Module], object]
ROUNDS: dict[str, tuple[Callable[..., Optimizer], Callable[..., Any] | None, Change | None]] = {
    "sgd~momentum=0.9": (
        lambda p: SGD(p, lr=0.05, momentum=0.9),
        lambda o: CosineAnnealingLR(o, STEPS),
        None,
    ),
    "sgd~momentum=0.5~nesterov=true~weight_decay=1": (
        lambda p: SGD(p, lr=0.05, momentum=0.5, nesterov=True, weight_decay=1),
        None,
        lambda model: clip_grad_norm_(model.parameters(), 0.5),
    ),
    "sgd~momentum=0.5~dampening=0.1": (
        lambda p: SGD(p, lr=0.05, momentum=0.5, dampening=0.1),
        lambda o: LinearLR(o, 0.25, 1, 3),
        None,
    ),
    "adam~beta1=0.8": (
        lambda p: Adam(p, lr=torch.tensor(1e-3), betas=(0.8, 0.999)),
        lambda o: LambdaLR(o, lambda step: [0, 1, 0.5][min(step, 2)]),
        lambda model: clip_grad_value_(model.parameters(), 0.01),
    ),
    "adamw~weight_decay=0.1": (lambda p: AdamW(p, lr=1e-3, weight_decay=0.1), None, None),
    "adamw": (
        lambda p: Adam(p, lr=1e-3, weight_decay=0.01, decoupled_weight_decay=True),
        None,
        None,
    ),
    "adagrad~lr_decay=0.1": (lambda p: Adagrad(p, lr=0.01, lr_decay=0.1), None, None),
    "rmsprop~momentum=0.5": (
        lambda p: RMSprop(p, lr=1e-3, momentum=0.5),
        lambda o: MultiStepLR(o, [3], 0.1),
        None,
    ),
}


def replayed(folder: Path) -> dict[str, str]:
    """What was recorded in a folder's round, from whose true samples the update follows."""
    files = RoundFolder(folder / "round").files()
    fields = recorded_fields(files.sent)
    specs = ("mine", "digits+size=8", "lenet+width=4")
    cell = captured_cell(*specs, sends="weights", victims=1, **fields)
    captures = Captures(folder / "captures")
    capture = import_capture(cell.upto("defense"), files, captures, folder)
    assert capture.comparison is not None
    assert capture.comparison.error < 1e-5
    return fields


@pytest.mark.parametrize("name", ROUNDS)
def test_a_round_of_any_optimizer_is_repeated_by_what_was_seen(
    name: str, model: nn.Module, truth: Truth, tmp_path: Path
) -> None:
    build, schedule, change = ROUNDS[name]
    optimizer = build(model.parameters())
    scheduler = schedule(optimizer) if schedule else None
    with gleak.capture(model, optimizer, tmp_path / "round", truth=truth, mini_batch=2):
        for step in range(STEPS):
            optimizer.zero_grad()
            batch = slice(0, 2) if step % 2 == 0 else slice(2, 3)
            functional.cross_entropy(model(truth[0][batch]), truth[1][batch]).backward()
            if change:
                change(model)
            optimizer.step()
            if scheduler:
                scheduler.step()
    assert replayed(tmp_path)["optimizer"] == name


def test_what_was_clipped_is_seen_to_its_bound(
    model: nn.Module, truth: Truth, tmp_path: Path
) -> None:
    """A bound that no gradient reaches, as for any other training, is none."""
    changes: dict[str, tuple[Change, dict[str, str]]] = {
        "norm": (lambda each: clip_grad_norm_(each.parameters(), 0.123), {"clip_norm": "0.123"}),
        "values": (
            lambda each: clip_grad_value_(each.parameters(), 4e-3),
            {"clip_value": "4e-3"},
        ),
        "nothing": (lambda each: clip_grad_norm_(each.parameters(), 1e3), {}),
    }
    for name, (change, expected) in changes.items():
        optimizer = sgd(model)
        with gleak.capture(model, optimizer, tmp_path / name):
            for _ in range(3):
                optimizer.zero_grad()
                functional.cross_entropy(model(truth[0]), truth[1]).backward()
                change(model)
                optimizer.step()
        fields = recorded_fields(RoundFolder(tmp_path / name).files().sent)
        assert fields == {"local_steps": "3", "local_lr": "0.1", **expected}


def test_a_gradient_that_was_changed_otherwise_is_named(
    model: nn.Module, truth: Truth, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    optimizer = sgd(model)
    with gleak.capture(model, optimizer, tmp_path):
        functional.cross_entropy(model(truth[0]), truth[1]).backward()
        for value in model.parameters():
            assert value.grad is not None
            value.grad += torch.rand_like(value)
        optimizer.step()
    assert "in 1 of 1 steps the gradient was changed between backward() and step()" in caplog.text


@pytest.mark.parametrize("build", [lambda p: SGD(p, lr=0.1, momentum=0.9), Adam, RMSprop, Adagrad])
def test_an_optimizer_of_an_earlier_round_keeps_its_state(
    build: Callable[..., Optimizer], model: nn.Module, truth: Truth, tmp_path: Path
) -> None:
    optimizer = build(model.parameters())
    for number in range(2):
        with gleak.capture(model, optimizer, tmp_path / str(number)):
            train(model, optimizer, truth)
    first, second = (RoundFolder(tmp_path / str(number)).files() for number in range(2))
    assert recorded_fields(second.sent) == {**recorded_fields(first.sent), "state": "kept"}
    assert not second.kept, "without the truth nothing can be repeated"


def test_plain_descent_has_no_state_to_keep(model: nn.Module, truth: Truth, tmp_path: Path) -> None:
    optimizer = sgd(model)
    train(model, optimizer, truth)
    with gleak.capture(model, optimizer, tmp_path):
        train(model, optimizer, truth)
    assert "state" not in recorded_fields(RoundFolder(tmp_path).files().sent)


def test_batch_normalisation_is_recorded_in_the_mode_of_the_steps(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 4), nn.BatchNorm1d(4))
    samples = torch.rand(SAMPLES, *SHAPE), torch.tensor([0, 1, 2])
    for mode, expected in ((True, "training"), (False, None)):
        model.train(mode)
        optimizer = sgd(model)
        with gleak.capture(model, optimizer, tmp_path / str(mode)):
            train(model, optimizer, samples)
        fields = recorded_fields(RoundFolder(tmp_path / str(mode)).files().sent)
        assert fields.get("batch_norm") == expected


def test_what_hooks_do_not_see_is_given(model: nn.Module, truth: Truth, tmp_path: Path) -> None:
    optimizer = sgd(model)
    given = {"mini_batch": 2, "label_smoothing": 0.1, "order": "shuffled", "clip_norm": 2.0}
    with gleak.capture(model, optimizer, tmp_path, truth=truth, **given):
        train(model, optimizer, truth)
    fields = recorded_fields(RoundFolder(tmp_path).files().sent)
    texts = {"mini_batch": "2", "label_smoothing": "0.1", "order": "shuffled", "clip_norm": "2"}
    assert fields == {"batch_size": "3", "local_steps": "2", "local_lr": "0.1", **texts}


def test_training_is_the_same_in_the_block(model: nn.Module, truth: Truth, tmp_path: Path) -> None:
    start = {name: value.clone() for name, value in model.state_dict().items()}
    train(model, sgd(model), truth)
    expected = {name: value.clone() for name, value in model.state_dict().items()}
    model.load_state_dict(start)
    optimizer = sgd(model)
    with gleak.capture(model, optimizer, tmp_path):
        train(model, optimizer, truth)
    for name, value in model.state_dict().items():
        assert torch.equal(value, expected[name])
    assert not any(value._post_accumulate_grad_hooks for value in model.parameters())
    assert not _global_optimizer_pre_hooks
    for file, state in (("before", start), ("client-0", expected)):
        found = load_file(tmp_path / f"{file}.safetensors")
        assert all(torch.equal(found[name], value) for name, value in state.items())


def test_training_does_not_wait_for_the_disk(
    model: nn.Module, truth: Truth, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that a power cut left without its end is refused when it is read."""
    monkeypatch.setattr("os.fsync", lambda _: pytest.fail("waits for the disk"))
    optimizer = sgd(model)
    with gleak.capture(model, optimizer, tmp_path):
        train(model, optimizer, truth)
    file = tmp_path / "client-0.safetensors"
    for left in (file.stat().st_size - 1, 0):
        os.truncate(file, left)
        with pytest.raises(ArtifactError, match="not a complete safetensors file"):
            recorded_fields([file])


def test_shared_weights_and_views_are_written(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    optimizer = sgd(model)
    with gleak.capture(model, optimizer, tmp_path):
        train(model, optimizer, (torch.rand(2, 4), torch.tensor([0, 3])))
    assert load_file(tmp_path / "before.safetensors").keys() == model.state_dict().keys()


@pytest.mark.parametrize(
    "change",
    [
        lambda x, y: [x.tolist(), y.numpy()],
        lambda x, y: (x.requires_grad_(), y.to(torch.uint16)),
    ],
)
def test_samples_are_tensors_arrays_or_lists(
    change: Callable[..., Truth], model: nn.Module, truth: Truth, tmp_path: Path
) -> None:
    optimizer = sgd(model)
    with gleak.capture(model, optimizer, tmp_path, truth=change(*truth)):
        train(model, optimizer, truth)
    written = load_file(tmp_path / "truth-0.safetensors")
    assert torch.equal(written["inputs"], truth[0])
    assert written["labels"].tolist() == truth[1].tolist()


def test_what_is_captured_is_open_to_its_owner_alone(
    model: nn.Module, truth: Truth, tmp_path: Path
) -> None:
    before, optimizer = os.umask(0), sgd(model)
    try:
        with gleak.capture(model, optimizer, tmp_path, truth=truth):
            train(model, optimizer, truth)
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    names = ("before", "client-0", "truth-0")
    assert modes == {f"{name}.safetensors": 0o600 for name in names}


def test_scaling_of_the_gradient_is_no_clipping(
    model: nn.Module, truth: Truth, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Gradients of three batches are added and divided, in rounds of one step and of several."""
    for steps in (1, 3):
        optimizer, folder = sgd(model), tmp_path / str(steps)
        with gleak.capture(model, optimizer, folder):
            for _ in range(steps):
                optimizer.zero_grad()
                for inputs, label in zip(truth[0].split(1), truth[1].split(1), strict=True):
                    functional.cross_entropy(model(inputs), label).backward()
                for value in model.parameters():
                    assert value.grad is not None
                    value.grad /= 3
                optimizer.step()
        fields = recorded_fields(RoundFolder(folder).files().sent)
        assert fields == {"local_steps": str(steps), "local_lr": "0.1"}
    assert "the gradient was changed" not in caplog.text


SCALED: dict[str, tuple[Change | None, dict[str, str]]] = {
    "alone": (None, {}),
    "norm": (lambda each: clip_grad_norm_(each.parameters(), 0.123), {"clip_norm": "0.123"}),
    "values": (lambda each: clip_grad_value_(each.parameters(), 4e-3), {"clip_value": "4e-3"}),
    "seldom": (lambda each: clip_grad_norm_(each.parameters(), 2), {"clip_norm": "2"}),
}


@pytest.mark.parametrize("name", SCALED)
def test_clipping_is_seen_where_the_loss_is_scaled(
    name: str, model: nn.Module, truth: Truth, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """By torch's own scaler; clipping that some steps only have is not hidden by the others."""
    change, expected = SCALED[name]
    optimizer, scaler = sgd(model), torch.amp.GradScaler("cpu", init_scale=2.0**12)
    with gleak.capture(model, optimizer, tmp_path):
        for step in range(3):
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(truth[0]), truth[1]) * (1 if step else 3)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            if change:
                change(model)
            scaler.step(optimizer)
            scaler.update()
    fields = recorded_fields(RoundFolder(tmp_path).files().sent)
    assert fields == {"local_steps": "3", "local_lr": "0.1", **expected}
    assert "the gradient was changed" not in caplog.text


WRAPPED: list[Callable[[nn.Module], Any]] = [
    nn.DataParallel,
    lambda model: torch.compile(model, backend="eager"),
]


@pytest.mark.parametrize("wrapped", WRAPPED)
def test_of_a_wrapped_model_the_network_inside_is_captured(
    wrapped: Callable[[nn.Module], nn.Module], model: nn.Module, truth: Truth, tmp_path: Path
) -> None:
    names, outer = model.state_dict().keys(), wrapped(model)
    optimizer = sgd(outer)
    with gleak.capture(outer, optimizer, tmp_path / "round", truth=truth):
        train(model, optimizer, truth)
    files = RoundFolder(tmp_path / "round").files()
    assert load_file(files.before).keys() == load_file(files.sent[0]).keys() == names
    replayed(tmp_path)


def test_layers_of_batch_normalisation_in_several_modes_are_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As of a backbone in evaluation mode with a new head; what is given is recorded."""
    layers = nn.Flatten(), nn.BatchNorm1d(64), nn.Linear(64, 4), nn.BatchNorm1d(4)
    model = nn.Sequential(*layers)
    model[1].eval()
    samples = torch.rand(SAMPLES, *SHAPE), torch.tensor([0, 1, 2])
    for given in ({}, {"batch_norm": "training"}):
        caplog.clear()
        optimizer, folder = sgd(model), tmp_path / str(len(given))
        with gleak.capture(model, optimizer, folder, **given):
            train(model, optimizer, samples)
        fields = recorded_fields(RoundFolder(folder).files().sent)
        assert fields.get("batch_norm") == given.get("batch_norm")
        warned = "1 of 2 layers of batch normalisation were in training mode" in caplog.text
        assert warned == (not given)
