"""Files of weights, in a torch folder of the test's own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from gleak.artifacts.dataset import Dataset
from gleak.core.registry import parse

Save = Callable[..., Path]


@pytest.fixture
def save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Save:
    """Save an object under a name where torch keeps such files; gives the path."""
    folder = tmp_path / "torch" / "hub" / "checkpoints"
    folder.mkdir(parents=True)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))

    def write(content: object, name: str = "own.pth") -> Path:
        torch.save(content, folder / name)
        return folder / name

    return write


@pytest.fixture
def saved(save: Save, images: Dataset) -> Path:
    """A LeNet of width 4 for the tiny images, as ``own.pth``."""
    network = parse("model", "lenet+width=4").build(images.shape, images.classes)
    return save(network.state_dict())
