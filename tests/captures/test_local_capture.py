"""Local training captured where it happens, and imported from the folder of its round."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import clip_grad_norm_, clip_grad_value_
from torch.optim import LBFGS, SGD, Adagrad, Adam, AdamW, Optimizer, RMSprop
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, LinearLR, MultiStepLR, OneCycleLR
from torch.optim.optimizer import _global_optimizer_pre_hooks

import gleak
from gleak.captures.importing import captured_cell, import_capture
from gleak.captures.locations import Captures
from gleak.captures.round_folder import RoundFolder, recorded_fields
from gleak.core.errors import ArtifactError, DataError, GleakError, IncompatibleError, SpecError
from gleak.core.registry import parse

SHAPE, CLASSES, SAMPLES, STEPS = (1, 8, 8), 10, 3, 5
Truth = tuple[Tensor, Tensor]


@pytest.fixture
def model() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return parse("model", "lenet+width=4").build(SHAPE, CLASSES)


@pytest.fixture
def truth() -> Truth:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.rand(SAMPLES, *SHAPE, generator=generator)
    return inputs, torch.randint(CLASSES, (SAMPLES,), generator=generator)


def sgd(model: nn.Module, **options: float) -> SGD:
    return SGD(model.parameters(), **{"lr": 0.1, **options})


def train(model: nn.Module, optimizer: Optimizer, truth: Truth, steps: int = 2) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        functional.cross_entropy(model(truth[0]), truth[1]).backward()
        optimizer.step()


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
    files = RoundFolder(tmp_path / "round").files()
    fields = recorded_fields(files.sent)
    assert fields["optimizer"] == name
    specs = ("mine", "digits+size=8", "lenet+width=4")
    cell = captured_cell(*specs, sends="weights", victims=1, **fields)
    captures = Captures(tmp_path / "captures")
    capture = import_capture(cell.upto("defense"), files, captures, tmp_path)
    assert capture.comparison is not None
    assert capture.comparison.error < 1e-5


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


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"minibatch": 2}, "unknown field 'minibatch'; did you mean 'mini_batch'"),
        ({"local_lr": 2}, "unknown field 'local_lr'; valid: .*clip_norm"),
        ({"mini_batch": 4}, "mini_batch=4 is more than the 3 samples"),
        ({"clip_norm": -1}, "field 'clip_norm' = -1"),
        ({"autocast": "float16"}, "field 'autocast' = 'float16'"),
    ],
)
def test_invalid_fields_of_the_training_are_refused_before_it(
    given: dict[str, Any], message: str, model: nn.Module, truth: Truth, tmp_path: Path
) -> None:
    refused(model, tmp_path / "round", SpecError, message, truth=truth, **given)


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


def refused(
    model: nn.Module,
    folder: Any,
    error: type[GleakError],
    message: str,
    optimizer: Optimizer | None = None,
    **options: Any,
) -> None:
    """Check that a capture is refused before the block is entered."""
    with (
        pytest.raises(error, match=message),
        gleak.capture(model, optimizer or sgd(model), folder, **options),
    ):
        pytest.fail("the block was entered")


def partial(model: nn.Module) -> Optimizer:
    return SGD(list(model.parameters())[1:], lr=0.1)


def foreign(model: nn.Module) -> Optimizer:
    return SGD([*model.parameters(), nn.Parameter(torch.ones(1))], lr=0.1)


def two_rates(model: nn.Module) -> Optimizer:
    first, *others = model.parameters()
    return SGD([{"params": [first], "lr": 0.2}, {"params": others}], lr=0.1)


def two_decays(model: nn.Module) -> Optimizer:
    first, *others = model.parameters()
    return AdamW([{"params": [first], "weight_decay": 0}, {"params": others}], lr=0.1)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda model: LBFGS(model.parameters()), r"is LBFGS, whose .*; train .* SGD, Adam, AdamW"),
        (lambda model: Adam(model.parameters(), amsgrad=True), "amsgrad=True, .*leave amsgrad out"),
        (lambda model: sgd(model, maximize=True), "has maximize=True, which is not followed"),
        (lambda model: RMSprop(model.parameters(), centered=True), "has centered=True"),
        (lambda model: sgd(model, momentum=1), "options: .*'momentum' = 1.0: .*less than 1"),
        (partial, r"does not train 0\.weight, which requires a gradient"),
        (foreign, r"trains 1 parameters that are not in model\.parameters"),
        (two_rates, r"learning rates \[0\.1, 0\.2\]"),
        (two_decays, r"weight_decay=0\.0 and weight_decay=0\.01, .*give all groups the same"),
    ],
)
def test_what_attacks_do_not_assume_is_refused_before_training(
    build: Callable[[nn.Module], Optimizer], message: str, model: nn.Module, tmp_path: Path
) -> None:
    refused(model, tmp_path / "round", IncompatibleError, message, build(model))
    assert not (tmp_path / "round").exists()


def test_frozen_parameters_need_no_optimizer(
    model: nn.Module, truth: Truth, tmp_path: Path
) -> None:
    first, *_ = model.parameters()
    first.requires_grad_(False)
    optimizer = partial(model)
    with gleak.capture(model, optimizer, tmp_path):
        train(model, optimizer, truth)
    assert recorded_fields(RoundFolder(tmp_path).files().sent)["local_steps"] == "2"


def cycling(model: nn.Module, truth: Truth, folder: Path) -> None:
    optimizer = sgd(model, momentum=0.9)
    scheduler = OneCycleLR(optimizer, 0.1, 4)
    with gleak.capture(model, optimizer, folder):
        for _ in range(3):
            train(model, optimizer, truth, steps=1)
            scheduler.step()


def frozen(model: nn.Module, truth: Truth, folder: Path) -> None:
    optimizer = sgd(model, lr=0.0)
    with gleak.capture(model, optimizer, folder):
        train(model, optimizer, truth)


def parted(model: nn.Module, truth: Truth, folder: Path) -> None:
    first, *_ = model.parameters()
    optimizer, other = sgd(model), Adam([first])
    with gleak.capture(model, optimizer, folder):
        train(model, optimizer, truth)
        other.step()


def idle(model: nn.Module, truth: Truth, folder: Path) -> None:
    with gleak.capture(model, sgd(model), folder):
        train(model, sgd(model), truth)


def failing(model: nn.Module, truth: Truth, folder: Path) -> None:
    optimizer = sgd(model)
    with gleak.capture(model, optimizer, folder, truth=truth):
        train(model, optimizer, truth)
        raise GleakError("of the training")


@pytest.mark.parametrize(
    ("session", "message"),
    [
        (cycling, r"optimizer's momentum changed within the round, .*cycle_momentum=False"),
        (frozen, "learning rate was 0 in all steps"),
        (parted, "another optimizer, Adam, also took steps on parameters"),
        (idle, "took no step in the block"),
        (failing, "of the training"),
    ],
)
def test_nothing_is_written_of_a_round_that_is_none(
    session: Callable[[nn.Module, Truth, Path], None],
    message: str,
    model: nn.Module,
    truth: Truth,
    tmp_path: Path,
) -> None:
    with pytest.raises(GleakError, match=message):
        session(model, truth, tmp_path / "round")
    assert not (tmp_path / "round").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x, y: (x * 255, y), r"inputs has torch\.float32 values from .*intensities"),
        (lambda x, y: (x, y - 20), r"labels has torch\.int64 values from .*classes 0 and above"),
        (lambda x, y: (x, y[:2]), r"inputs of shape \(3, 1, 8, 8\) and labels of shape \(2,\)"),
        (lambda x, y: (x[:0], y[:0]), r"inputs of shape \(0, 1, 8, 8\) .* each of N samples"),
        (lambda x, y: (x.mean(), y[0]), r"inputs of shape \(\) and labels of shape \(\)"),
        (lambda x, y: (x + 0j, y), r"inputs is a tensor of torch\.complex64, .*give a dense"),
        (lambda x, y: (x.to_sparse(), y), r"inputs is a tensor of .*torch\.sparse_coo, .*dense"),
        (lambda x, y: (x.to("meta"), y), "inputs is a tensor of .*on meta; give a dense"),
        (lambda x, y: (x, y, y), "too many values to unpack .*give inputs and labels"),
        (lambda x, y: x.mean(), "iteration over a 0-d tensor; give inputs and labels"),
        (lambda x, y: (x, ["cat"] * 3), "too many dimensions 'str'; give inputs and labels"),
    ],
)
def test_invalid_samples_are_refused_before_training(
    change: Callable[..., Truth], message: str, model: nn.Module, truth: Truth, tmp_path: Path
) -> None:
    message = f"gleak.capture, truth: {message}"
    refused(model, tmp_path, ArtifactError, message, truth=change(*truth))


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


class Counting(nn.Linear):
    def get_extra_state(self) -> dict[str, int]:
        return {"count": 3}


def test_a_state_that_is_not_only_tensors_is_refused_before_training(tmp_path: Path) -> None:
    message = r"0\._extra_state in model.state_dict\(\) is dict"
    refused(nn.Sequential(Counting(4, 2)), tmp_path, IncompatibleError, message)


@pytest.mark.parametrize(
    ("folder", "error"),
    [(None, SpecError), ("a\0b", SpecError), (3, SpecError), (Path(__file__) / "a", ArtifactError)],
)
def test_a_folder_that_cannot_be_is_refused_before_training(
    model: nn.Module, folder: Any, error: type[GleakError]
) -> None:
    refused(model, folder, error, r"expected the path of a folder|py: not a folder")


@pytest.mark.parametrize("client", [None, True, "a/../../../escaped", "", "a b", "a\0", "a" * 101])
def test_the_name_of_a_client_is_no_path(model: nn.Module, tmp_path: Path, client: Any) -> None:
    message = r"client .*: give a name of at most 100 characters, let"
    refused(model, tmp_path / "round", SpecError, message, client=client)
    assert not [*tmp_path.iterdir()]


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


def test_of_two_captures_of_one_client_at_a_time_the_later_is_told(
    model: nn.Module, truth: Truth, tmp_path: Path
) -> None:
    optimizer = sgd(model)
    with (
        pytest.raises(DataError, match=r"client-0\.safetensors already exists"),
        gleak.capture(model, optimizer, tmp_path),
    ):
        with gleak.capture(model, optimizer, tmp_path):
            train(model, optimizer, truth, steps=1)
        first = (tmp_path / "client-0.safetensors").read_bytes()
        train(model, optimizer, truth, steps=1)
    assert (tmp_path / "client-0.safetensors").read_bytes() == first


def test_a_client_is_captured_once_and_with_its_round(
    model: nn.Module, truth: Truth, tmp_path: Path
) -> None:
    optimizer = sgd(model)
    with gleak.capture(model, optimizer, tmp_path, client="a"):
        train(model, optimizer, truth)
    refused(model, tmp_path, DataError, r"client-a\.safetensors already exists", client="a")
    refused(model, tmp_path, DataError, "began with other values than this model", client="b")
