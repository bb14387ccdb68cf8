"""A round whose optimiser kept a state, repeated from the state that was captured."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.optim import SGD, Adagrad, Adam, AdamW, Optimizer, RMSprop

import gleak
from gleak.captures.frameworks.observers import write_round
from gleak.captures.importing import Capture, captured_cell, import_capture
from gleak.captures.kept_state import steps_before
from gleak.captures.locations import Captures
from gleak.captures.observed_training import observed
from gleak.captures.round_folder import RoundFolder, recorded_fields
from gleak.core.errors import ArtifactError
from tests.captures.local_training import CLASSES, SHAPE

SAMPLES = 4
OPTIMIZERS: list[Callable[..., Optimizer]] = [
    lambda p: SGD(p, lr=0.1, momentum=0.9, dampening=0.1, weight_decay=0.01),
    lambda p: SGD(p, lr=0.1, momentum=0.5, nesterov=True),
    lambda p: Adam(p, lr=1e-3),
    lambda p: AdamW(p, lr=1e-3, betas=(0.8, 0.99)),
    lambda p: Adagrad(p, lr=0.01, lr_decay=0.1),
    lambda p: RMSprop(p, lr=1e-3),
    lambda p: RMSprop(p, lr=1e-3, momentum=0.5),
]


def samples(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(seed)
    inputs = torch.rand(SAMPLES, *SHAPE, generator=random)
    return inputs, torch.randint(CLASSES, (SAMPLES,), generator=random)


def train(model: nn.Module, optimizer: Optimizer, seed: int) -> None:
    """Two epochs of two steps."""
    loss = nn.CrossEntropyLoss()
    inputs, labels = samples(seed)
    for x, y in 2 * [*zip(inputs.split(2), labels.split(2), strict=True)]:
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()


def captured(model: nn.Module, optimizer: Optimizer, folder: Path, seed: int = 1) -> RoundFolder:
    """A round after one of other samples."""
    train(model, optimizer, seed=0)
    with gleak.capture(model, optimizer, folder, truth=samples(seed), mini_batch=2):
        train(model, optimizer, seed)
    return RoundFolder(folder)


def imported(round_folder: RoundFolder, folder: Path) -> Capture:
    files = round_folder.files()
    fields = recorded_fields(files.sent)
    assert fields["state"] == "kept"
    specs = ("mine", "digits+size=8", "lenet+width=4")
    cell = captured_cell(*specs, sends="weights", victims=1, **fields).upto("defense")
    return import_capture(cell, files, Captures(folder / "captures"), folder, replace=True)


@pytest.mark.parametrize("build", OPTIMIZERS)
def test_a_round_is_repeated_from_the_state_that_was_kept(
    build: Callable[..., Optimizer], model: nn.Module, tmp_path: Path
) -> None:
    found = captured(model, build(model.parameters()), tmp_path / "round")
    capture = imported(found, tmp_path)
    assert capture.comparison is not None
    assert capture.comparison.error < 1e-5
    found.state("0").unlink()
    unknown = imported(found, tmp_path).comparison
    assert unknown is not None and not unknown.state_known
    assert unknown.error > 1e-3, "the state makes a difference"


def test_the_state_is_open_to_its_owner_alone(model: nn.Module, tmp_path: Path) -> None:
    optimizer = SGD(model.parameters(), lr=0.1, momentum=0.9)
    path = captured(model, optimizer, tmp_path).state("0")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_framework_writes_the_state_with_the_samples(model: nn.Module, tmp_path: Path) -> None:
    optimizer, files = Adam(model.parameters(), lr=1e-3), RoundFolder(tmp_path / "round")
    train(model, optimizer, seed=0)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with observed(lambda inputs: inputs) as seen:
        train(model, optimizer, seed=1)
    (tmp_path / "round").mkdir()
    write_round(files, "0", before, model.state_dict(), seen)
    capture = imported(files, tmp_path)
    assert capture.comparison is not None
    assert capture.comparison.error < 1e-5


def test_a_new_optimizer_has_no_state(model: nn.Module) -> None:
    """Adagrad's sums are there before its first step."""
    assert steps_before(Adagrad(model.parameters())) == 0
    with observed(lambda inputs: inputs) as seen:
        train(model, Adagrad(model.parameters()), seed=0)
    assert seen.state is None and "state" not in seen.fields()


def test_a_state_of_something_else_is_named(model: nn.Module, tmp_path: Path) -> None:
    optimizer = SGD(model.parameters(), lr=0.1, momentum=0.9)
    found = captured(model, optimizer, tmp_path / "round")
    path = found.state("0")
    values = load_file(path)
    name = next(name for name in values if name.endswith(".weight.momentum_buffer"))
    save_file({**values, name: torch.zeros(3)}, path)
    with pytest.raises(ArtifactError, match=r"state-0.*momentum_buffer has another shape"):
        imported(found, tmp_path)
    save_file({"steps": values["steps"]}, path)
    with pytest.raises(ArtifactError, match=r"state-0.*no state of sgd\+momentum=0.9"):
        imported(found, tmp_path)
