"""Fixtures for knowledge that trains within seconds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from gleak.artifacts.dataset import Dataset
from gleak.artifacts.model import Knowledge
from gleak.core.registry import load, parse
from gleak.data.prepare import prepare_dataset
from gleak.knowledge.base import KnowledgeSpec
from gleak.knowledge.loading import load_knowledge
from gleak.knowledge.train_knowledge import train_knowledge


@pytest.fixture(scope="session")
def tiny() -> Callable[..., KnowledgeSpec]:
    """Return a function that makes the smallest spec of a name."""

    def make(name: str, steps: int = 4) -> KnowledgeSpec:
        size = "+size=32" if "size" in load("knowledge")[name].model_fields else ""
        return parse("knowledge", f"{name}+steps={steps}+batch_size=4+width=4{size}")

    return make


@pytest.fixture
def learn(images: Dataset, tmp_path: Path) -> Callable[..., Path]:
    """Return a function that trains on the tiny images and returns the file."""

    def make(spec: KnowledgeSpec, folder: str = "knowledge", seed: int = 3) -> Path:
        images.write(tmp_path / "dataset.h5")
        output = tmp_path / folder / "knowledge.h5"
        train_knowledge(spec, tmp_path / "dataset.h5", output, seed=seed, device="cpu")
        Knowledge.read(output)
        return output

    return make


@pytest.fixture(scope="session")
def learn_digits(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[KnowledgeSpec], tuple[nn.Module, Knowledge]]:
    """Return a function that trains on the digits; gives the network and the file's content."""
    folder = tmp_path_factory.mktemp("digits")
    digits = parse("dataset", "digits")
    prepare_dataset(digits, folder, 0, folder / "dataset.h5")

    def make(spec: KnowledgeSpec) -> tuple[nn.Module, Knowledge]:
        output = folder / spec.name / "knowledge.h5"
        train_knowledge(spec, folder / "dataset.h5", output, seed=0, device="cpu")
        return load_knowledge(output, digits.shape)[1], Knowledge.read(output)

    return make


@pytest.fixture(scope="session")
def count_multiply_adds() -> Callable[..., int]:
    """Return a function that counts those of convolutions and dense layers in a forward pass."""

    @torch.no_grad()
    def count(network: nn.Module, *inputs: torch.Tensor) -> int:
        work: list[int] = []
        for layer in network.modules():
            if isinstance(layer, nn.Conv2d | nn.Linear):
                layer.register_forward_hook(
                    lambda layer, _, out: work.append(layer.weight.numel() * out[0, 0].numel())
                )
        getattr(network, "generate", network)(*inputs)
        return sum(work)

    return count
