"""Properties of all knowledge that is trained here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from gleak.artifacts.dataset import Dataset
from gleak.artifacts.model import Knowledge
from gleak.core.errors import ArtifactError, IncompatibleError
from gleak.core.registry import load, parse
from gleak.knowledge.base import KnowledgeSpec, TrainedSpec, Trainer
from gleak.knowledge.loading import load_knowledge

NAMES = sorted(n for n, cls in load("knowledge").items() if issubclass(cls, TrainedSpec))
SHAPE, CLASSES = (3, 8, 8), 4
Tiny = Callable[..., KnowledgeSpec]
Learn = Callable[..., Path]
Inputs = tuple[torch.Tensor, ...]
each_name = pytest.mark.parametrize("name", NAMES)


def inputs_of(network: nn.Module, shape: tuple[int, ...], count: int = 5) -> Inputs:
    """Draw inputs of a network: images, with their noise for a denoiser, or codes and labels."""
    random = torch.Generator().manual_seed(0)
    if hasattr(network, "generate"):
        codes = torch.randn(count, network.code_size, generator=random)
        return codes, torch.arange(count) % network.classes
    images = torch.rand(count, *shape, generator=random)
    return (images, torch.linspace(0.1, 0.2, count)) if hasattr(network, "energy") else (images,)


@torch.no_grad()
def call(network: nn.Module, inputs: Inputs) -> torch.Tensor:
    """Return the outputs of a network."""
    return getattr(network, "generate", network)(*inputs)


def output_shape(network: nn.Module, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of the output for one sample: an image, or scores of classes."""
    return (CLASSES,) if hasattr(network, "tags") else shape


@each_name
def test_what_was_trained_is_loaded_for_samples_that_do_not_interact(
    name: str, tiny: Tiny, learn: Learn, images: Dataset, tmp_path: Path
) -> None:
    path = learn(tiny(name))
    found, network = load_knowledge(path, SHAPE)
    assert found == name
    assert not any(part.training for part in network.modules())
    stored = Knowledge.read(path)
    assert stored.spec == f"{images.spec}/{tiny(name)}"
    assert {key for key, _ in network.named_parameters()} == set(stored.parameters)
    assert stored.loss_step.tolist() == [1, 2, 3, 4]
    assert all(curve.shape == (4,) for curve in stored.losses.values())
    assert tuple(stored.losses) == tiny(name).losses != ()
    inputs = inputs_of(network, SHAPE)
    outputs = call(network, inputs)
    alone = call(network, tuple(values[2:3] for values in inputs))
    if outputs.ndim > 2:
        assert 0 <= outputs.min() <= outputs.max() <= 1
    torch.testing.assert_close(alone[0], outputs[2])
    with pytest.raises(ArtifactError, match=r"of shape \(3, 8, 8\), but these have \(1, 8, 8\)"):
        load_knowledge(path, (1, 8, 8))
    stored.parameters.pop(next(iter(stored.parameters)))
    stored.write(tmp_path / "other.h5")
    with pytest.raises(ArtifactError, match="does not fit its architecture"):
        load_knowledge(tmp_path / "other.h5", SHAPE)


@each_name
def test_the_seed_decides(name: str, tiny: Tiny, learn: Learn) -> None:
    first, again, other = (
        learn(tiny(name), folder, seed) for folder, seed in (("a", 3), ("b", 3), ("c", 4))
    )
    assert first.read_bytes() == again.read_bytes()
    losses = [list(Knowledge.read(path).losses.values()) for path in (first, other)]
    assert not np.array_equal(*losses)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if name in ("codec", "postprocessor") else [])
        for name in NAMES
    ],
)
def test_broken_off_at_every_step_it_comes_to_the_same(
    name: str, tiny: Tiny, learn: Learn, stops: Callable
) -> None:
    def attempt(folder: str) -> bytes:
        path = learn(tiny(name), folder)
        assert [file.name for file in path.parent.iterdir()] == ["knowledge.h5"]
        return path.read_bytes()

    resumed, broken_off = stops(lambda: attempt("broken"))
    assert resumed == attempt("whole")
    assert broken_off


@each_name
@pytest.mark.parametrize("shape", [(3, 16, 16), (1, 28, 28), (2, 33, 20)])
def test_costs_are_those_of_the_network(
    name: str, shape: tuple[int, ...], count_multiply_adds: Callable[..., int]
) -> None:
    spec = load("knowledge")[name](width=5, **({"size": 40} if name == "codec" else {}))
    network = spec.build(shape, CLASSES)
    counted = count_multiply_adds(network, *inputs_of(network, shape, count=1))
    assert spec.multiply_adds(shape, CLASSES) == counted
    assert spec.parameters(shape, CLASSES) == sum(part.numel() for part in network.parameters())


@each_name
@pytest.mark.parametrize("side", [16, 17, 28, 64, 100])
@pytest.mark.parametrize("channels", [1, 2, 3])
def test_images_of_any_size_are_served(name: str, side: int, channels: int) -> None:
    shape = (channels, side, side)
    spec = load("knowledge")[name](width=2, **({"size": 50} if name == "codec" else {}))
    spec.check_shape(shape)
    network = spec.build(shape, CLASSES).eval()
    found = call(network, inputs_of(network, shape, count=2))
    assert found.shape == (2, *output_shape(network, shape))


@each_name
def test_tables_and_empty_splits_are_refused(name: str, tiny: Tiny, table: Dataset) -> None:
    with pytest.raises(
        IncompatibleError, match=f"{name}.* needs images, but breast_cancer contains tabular"
    ):
        tiny(name).check(parse("dataset", "breast_cancer"))
    with pytest.raises(IncompatibleError, match="mine has no samples in its train split"):
        tiny(name).check_samples(0, "mine")


@each_name
def test_a_training_that_diverges_is_refused(
    name: str, tiny: Tiny, learn: Learn, monkeypatch: pytest.MonkeyPatch
) -> None:
    def diverge(self: Trainer, *_: object) -> dict[str, torch.Tensor]:
        return {"loss": torch.tensor(torch.nan)}

    spec = tiny(name)
    monkeypatch.setattr(type(spec.trainer(SHAPE, CLASSES)), "learn", diverge)
    with pytest.raises(ArtifactError, match="NaN or infinite"):
        learn(spec)


def test_no_training_changes_torchs_own_random_numbers(tiny: Tiny, learn: Learn) -> None:
    before = torch.get_rng_state()
    learn(tiny("codec"))
    assert torch.equal(torch.get_rng_state(), before)


@each_name
def test_victims_that_may_be_among_the_public_samples_are_refused(name: str, tiny: Tiny) -> None:
    with pytest.raises(IncompatibleError, match=r"from which client .* draws its samples"):
        tiny(name).check_victims(parse("dataset", "cifar10"), parse("client", "fedsgd+split=train"))
