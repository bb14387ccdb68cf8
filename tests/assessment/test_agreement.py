from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch.nn import functional

from gleak.assessment.agreement import agreements
from gleak.assessment.resolved import Resolved
from gleak.captures.importing import captured_cell, import_capture
from gleak.captures.locations import Captures
from gleak.captures.round_folder import Files
from gleak.core.registry import parse

Resolve = Callable[..., Resolved]
RATE = 0.1


def capture(
    folder: Path,
    name: str,
    told: bool,
    rate: float = RATE,
    scale: float = 1.0,
    **fields: object,
) -> None:
    """Import a client's single step, as one of a rate, scaled by a fault of the recording."""
    generator = torch.Generator().manual_seed(0)
    network = parse("model", "mlp").build((1, 16, 16), 10)
    inputs = torch.rand(2, 1, 16, 16, generator=generator)
    labels = torch.tensor([3, 5])
    files = Files(folder / "before", [folder / "after"], [folder / "truth"] if told else [])
    save_file(network.state_dict(), files.before)
    functional.cross_entropy(network(inputs), labels).backward()
    after = {
        key: value.detach() - scale * RATE * value.grad for key, value in network.named_parameters()
    }
    save_file(after, files.sent[0])
    save_file({"inputs": inputs, "labels": labels}, folder / "truth")
    client = {"victims": 1, "batch_size": 2, "local_lr": rate, "sends": "weights", **fields}
    cell = captured_cell(name, "digits", "mlp", **client).upto("defense")
    (folder / "data").mkdir(exist_ok=True)
    import_capture(cell, files, Captures(folder / "data/captures"), folder / "data")


@pytest.mark.parametrize(
    ("rate", "scale", "told", "agrees"),
    [
        (RATE, 1.0, True, True),
        (RATE / 2, 1.0, True, False),
        (RATE, -1.0, True, False),
        (RATE, 1.0, False, True),
    ],
)
def test_a_capture_is_computed_again_from_its_samples(
    resolved: Resolve, tmp_path: Path, rate: float, scale: float, told: bool, agrees: bool
) -> None:
    capture(tmp_path, "hand", told, rate, scale)
    (found,) = agreements(resolved(model="mlp", captures=["hand"]))
    assert (found.capture, found.agrees) == ("hand", agrees)
    assert (found.error is None) != told
    if told:
        assert (found.error < 1e-4) == agrees
    assert not found.text.startswith("warning")


def test_a_state_that_only_the_import_has_read_contradicts_nothing(
    resolved: Resolve, tmp_path: Path
) -> None:
    kept = {"optimizer": "sgd~momentum=0.9", "state": "kept"}
    capture(tmp_path, "hand", told=True, scale=3.0, **kept)
    (found,) = agreements(resolved(model="mlp", captures=["hand"]))
    assert (found.agrees, found.error) == (True, None)
    assert "which only gleak import has read" in found.text


def test_the_rate_that_explains_a_capture_is_named(resolved: Resolve, tmp_path: Path) -> None:
    capture(tmp_path, "hand", told=True, rate=RATE / 2)
    (found,) = agreements(resolved(model="mlp", captures=["hand"]))
    assert found.error == pytest.approx(1, abs=1e-3)
    assert "they agree with --local-lr 0.1" in found.text


def test_an_update_that_its_own_values_contradict_is_found_without_samples(
    resolved: Resolve, tmp_path: Path
) -> None:
    """Values of one magnitude, as after a step of Adam."""
    network = parse("model", "mlp").build((1, 16, 16), 10)
    before = network.state_dict()
    save_file(before, tmp_path / "before")
    generator = torch.Generator().manual_seed(0)
    signs = {
        name: value - 0.01 * torch.randn(value.shape, generator=generator).sign()
        for name, value in before.items()
    }
    save_file(signs, tmp_path / "after")
    client = {"victims": 1, "batch_size": 2, "local_lr": RATE, "sends": "weights"}
    cell = captured_cell("hand", "digits", "mlp", **client).upto("defense")
    files = Files(tmp_path / "before", [tmp_path / "after"], [])
    (tmp_path / "data").mkdir()
    import_capture(cell, files, Captures(tmp_path / "data/captures"), tmp_path / "data")
    (found,) = agreements(resolved(model="mlp", captures=["hand"]))
    assert (found.agrees, found.error) == (False, None)
    assert "adam" in found.text
