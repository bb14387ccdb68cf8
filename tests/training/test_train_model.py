"""Networks of users: what their functions set is kept, and repetitions are independent."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from gleak.artifacts.dataset import Dataset
from gleak.artifacts.model import Model
from gleak.core.registry import parse
from gleak.training.train_model import train_model

PRESET = 0.25


class Tokens(nn.Module):
    """A network with a parameter of its own, attention, and a bias that its constructor sets."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        width = shape[-1]
        self.token = nn.Parameter(torch.randn(width))
        self.attention = nn.MultiheadAttention(width, 1, batch_first=True)
        self.norm = nn.BatchNorm1d(width)
        self.head = nn.Linear(width, classes)
        nn.init.constant_(self.head.bias, PRESET)

    def forward(self, inputs: Tensor) -> Tensor:
        rows = inputs.flatten(1, -2) + self.token
        attended, _ = self.attention(rows, rows, rows)
        logits: Tensor = self.head(self.norm(attended.mean(1)))
        return logits


@pytest.fixture
def dataset(images: Dataset, tmp_path: Path) -> Path:
    images.write(tmp_path / "dataset.h5")
    return tmp_path / "dataset.h5"


def parameters(training: str, dataset: Path) -> dict[str, Tensor]:
    output = dataset.with_name("model.h5")
    spec = parse("training", training)
    model = parse("model", f"custom+factory={__name__}.Tokens")
    train_model(model, spec, dataset, output, seed=3, device="cpu")
    values = Model.read(output).parameters
    return {name: torch.from_numpy(value) for name, value in values.items()}


def test_repetitions_draw_all_that_the_function_draws(dataset: Path) -> None:
    first, again, other = (
        parameters(f"untrained{text}", dataset) for text in ("", "", "+repetition=1")
    )
    for name in ("token", "attention.in_proj_weight", "head.weight"):
        assert torch.equal(first[name], again[name])
        assert not torch.isclose(first[name], other[name]).any(), name


def test_values_that_the_function_sets_are_kept_unless_another_initialisation_is_asked_for(
    dataset: Path,
) -> None:
    assert (parameters("untrained", dataset)["head.bias"] == PRESET).all()
    assert not (parameters("untrained+init=uniform", dataset)["head.bias"] == PRESET).any()


def test_a_last_batch_of_one_sample_is_joined_to_the_one_before(
    images: Dataset, dataset: Path
) -> None:
    """Batch normalisation of dense layers cannot normalise one sample."""
    size = len(images.train_labels) - 1
    trained = parameters(f"central+epochs=1+batch_size={size}", dataset)
    assert all(value.isfinite().all() for value in trained.values())
