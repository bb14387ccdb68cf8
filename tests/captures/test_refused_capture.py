"""Captures that are refused, before the training where it can be told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import LBFGS, SGD, Adam, AdamW, Optimizer, RMSprop
from torch.optim.lr_scheduler import OneCycleLR

import gleak
from gleak.captures.round_folder import RoundFolder, recorded_fields
from gleak.core.errors import ArtifactError, DataError, GleakError, IncompatibleError, SpecError
from tests.captures.local_training import Truth, sgd, train


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
        (two_rates, r"learning rates \[0\.1, 0\.2\].* gleak import --before --after"),
        (
            two_decays,
            r"weight_decay=0\.0 and weight_decay=0\.01, .*give all groups the same, or save the "
            r"state dicts .* --before --after",
        ),
    ],
)
def test_what_attacks_do_not_assume_is_refused_before_training(
    build: Callable[[nn.Module], Optimizer], message: str, model: nn.Module, tmp_path: Path
) -> None:
    refused(model, tmp_path / "round", IncompatibleError, message, build(model))
    assert not (tmp_path / "round").exists()


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
        (lambda x, y: (2 * x - 1, y), "inputs has .* before the normalisation, and a network"),
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


def test_frozen_parameters_need_no_optimizer(
    model: nn.Module, truth: Truth, tmp_path: Path
) -> None:
    first, *_ = model.parameters()
    first.requires_grad_(False)
    optimizer = partial(model)
    with gleak.capture(model, optimizer, tmp_path):
        train(model, optimizer, truth)
    assert recorded_fields(RoundFolder(tmp_path).files().sent)["local_steps"] == "2"
