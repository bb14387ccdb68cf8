"""What was captured of two clients that trained in plain torch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

from gleak.captures.importing import captured_cell
from gleak.captures.round_folder import Files
from gleak.core.registry import parse
from gleak.studies.cell import Cell

MODEL = "lenet+width=4"
SHAPE = (1, 8, 8)
DATASET = "digits+size=8"
CLASSES = 10
VICTIMS = 2
SAMPLES = 3
LR = 0.1


@dataclass(frozen=True)
class Elsewhere:
    """Where training went on, and what is said of it."""

    files: Files
    network: nn.Module
    truth: list[tuple[Tensor, Tensor]]
    steps: int

    def cell(self, sends: str = "weights", name: str = "mine", **changes: object) -> Cell:
        """The cell of the capture, as far as it says what is so but for changes."""
        said = {"victims": VICTIMS, "batch_size": SAMPLES, "local_lr": LR, "sends": sends}
        fields = {**said, "local_steps": self.steps, **changes}
        return captured_cell(name, DATASET, MODEL, **fields).upto("defense")

    def spoil(self, file: Path, change: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> None:
        """Write a file anew with other content."""
        from safetensors.torch import load_file

        save_file(change(load_file(file)), file)


def trained(network: nn.Module, inputs: Tensor, labels: Tensor, steps: int) -> nn.Module:
    """By torch's own optimiser."""
    network = copy.deepcopy(network)
    optimizer = torch.optim.SGD(network.parameters(), lr=LR)
    for _ in range(steps):
        optimizer.zero_grad()
        functional.cross_entropy(network(inputs), labels).backward()
        optimizer.step()
    return network


@pytest.fixture
def elsewhere(tmp_path: Path) -> Elsewhere:
    """Two clients that took two steps."""
    random = torch.Generator().manual_seed(0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = parse("model", MODEL).build(SHAPE, CLASSES)
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    save_file(network.state_dict(), folder / "before.safetensors")
    truth = []
    for victim in range(VICTIMS):
        inputs = torch.rand(SAMPLES, *SHAPE, generator=random)
        labels = torch.randint(CLASSES, (SAMPLES,), generator=random)
        truth.append((inputs, labels))
        after = trained(network, inputs, labels, steps=2)
        save_file(after.state_dict(), folder / f"after-{victim}.safetensors")
        save_file({"inputs": inputs, "labels": labels}, folder / f"truth-{victim}.safetensors")
    named = [[folder / f"{kind}-{v}.safetensors" for v in range(2)] for kind in ("after", "truth")]
    return Elsewhere(Files(folder / "before.safetensors", *named), network, truth, steps=2)


@pytest.fixture
def model() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return parse("model", MODEL).build(SHAPE, CLASSES)


@pytest.fixture
def truth() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.rand(SAMPLES, *SHAPE, generator=generator)
    return inputs, torch.randint(CLASSES, (SAMPLES,), generator=generator)
