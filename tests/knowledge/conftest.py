"""Fixtures for knowledge that trains within seconds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gleak.artifacts.dataset import Dataset
from gleak.artifacts.model import Knowledge
from gleak.core.registry import load, parse
from gleak.knowledge.base import KnowledgeSpec
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
