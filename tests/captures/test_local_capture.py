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
from torch.optim import SGD, Adam, Optimizer
from torch.optim.lr_scheduler import ExponentialLR

import gleak
from gleak.captures.importing import captured_cell, import_capture
from gleak.captures.locations import Captures
from gleak.captures.round_folder import RoundFolder, recorded_fields
from gleak.core.errors import ArtifactError, DataError, GleakError, IncompatibleError, SpecError
from gleak.core.registry import parse

SHAPE, CLASSES, SAMPLES = (1, 8, 8), 10, 3
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
    assert not optimizer._optimizer_step_post_hooks
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


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda model: Adam(model.parameters()), r"optimizer is Adam, not torch\.optim\.SGD"),
        (lambda model: sgd(model, momentum=0.9), r"momentum=0\.9; attacks assume plain"),
        (lambda model: sgd(model, weight_decay=1e-4), r"weight_decay=0\.0001"),
        (partial, r"does not train 0\.weight, which requires a gradient"),
        (foreign, r"trains 1 parameters that are not in model\.parameters"),
        (two_rates, r"learning rates \[0\.1, 0\.2\]"),
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


def scheduled(model: nn.Module, truth: Truth, folder: Path) -> None:
    optimizer = sgd(model)
    scheduler = ExponentialLR(optimizer, 0.5)
    with gleak.capture(model, optimizer, folder):
        for _ in range(3):
            train(model, optimizer, truth, steps=1)
            scheduler.step()


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
        (scheduled, r"changed from 0\.1 to 0\.05 at step 2 of 3"),
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
