"""Random crops and flips of clients' images: what is drawn, fed, and scored."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gleak.artifacts.model import Model
from gleak.artifacts.private import Private
from gleak.artifacts.update import Update
from gleak.clients.augmentation import PADDING, augmented
from gleak.core.errors import IncompatibleError, SpecError
from gleak.core.registry import parse
from gleak.models.broadcast import load_network
from gleak.simulation.simulate import simulate_clients

KINDS = ("crop", "flip", "crop_flip")
SIZE = 6


@pytest.fixture
def images() -> Tensor:
    return torch.rand(200, 2, SIZE, SIZE, generator=torch.Generator().manual_seed(0)) + 0.1


@pytest.fixture(autouse=True)
def seeded() -> object:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def variants(image: Tensor, kind: str) -> list[Tensor]:
    """All results that an image can have, as far as they differ."""
    padded = nn.functional.pad(image, [PADDING] * 4)
    places = range(2 * PADDING + 1) if "crop" in kind else [PADDING]
    crops = [padded[:, y : y + SIZE, x : x + SIZE] for y in places for x in places]
    return crops + [crop.flip(2) for crop in crops if "flip" in kind]


@pytest.mark.parametrize("kind", KINDS)
def test_every_image_is_one_of_its_variants_and_all_occur(kind: str, images: Tensor) -> None:
    known = variants(images[0], kind)
    drawn = augmented(images[:1].expand(40 * len(known), -1, -1, -1), kind)
    found = {next(n for n, one in enumerate(known) if torch.equal(one, each)) for each in drawn}
    assert len(found) == len(known)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("client", ["fedsgd", "fedavg+local_steps=3+local_lr=0.1"])
def test_an_update_is_that_of_the_samples_that_were_fed(
    kind: str, client: str, images: Tensor
) -> None:
    """Of the first epoch, to which three steps on thirds of the batch belong."""
    network = parse("model", "lenet+width=3").build((2, SIZE, SIZE), 4).eval()
    batch = "+batch_size=6" + ("" if client == "fedsgd" else "+mini_batch=2")
    samples, labels = images[:6], torch.tensor([0, 1, 2, 3, 3, 1])
    random = parse("client", f"{client}{batch}+augmentation={kind}")
    torch.manual_seed(5)
    sent = random.compute(network, samples, labels)
    torch.manual_seed(5)
    fed = random.feed(samples)
    assert not torch.equal(fed, samples)
    expected = parse("client", client + batch).compute(network, fed, labels)
    assert all(torch.equal(value, expected[name]) for name, value in sent.items())


def test_every_epoch_draws_anew(images: Tensor) -> None:
    """Two epochs of a linear network are two gradients, at rate zero but for rounding."""
    network = nn.Sequential(nn.Flatten(), nn.Linear(2 * SIZE * SIZE, 4)).eval()
    samples, labels = images[:3], torch.tensor([0, 1, 2])
    twice = parse("client", "fedavg+batch_size=3+local_steps=2+local_lr=1e-12+augmentation=crop")
    torch.manual_seed(5)
    sent = twice.compute(network, samples, labels)
    torch.manual_seed(5)
    epochs = [twice.feed(samples) for _ in range(2)]
    assert not torch.equal(*epochs)
    once = parse("client", "fedsgd+batch_size=3")
    means = [once.compute(network, fed, labels)["1.weight"] for fed in epochs]
    torch.testing.assert_close(sent["1.weight"], (means[0] + means[1]) / 2)


@pytest.mark.parametrize("defense", ["none", "secure_aggregation+clients=2", "soteria+probes=2"])
def test_private_samples_are_those_that_were_fed(
    defense: str, simulate: Callable[..., Path], tmp_path: Path
) -> None:
    source = simulate()
    paths = source / "dataset.h5", source / "model.h5"
    found = {}
    for name, field in (("random", "+augmentation=crop_flip"), ("plain", "")):
        client = parse("client", f"fedsgd+batch_size=2+victims=3{field}")
        folder, spec = tmp_path / name, parse("defense", defense)
        simulate_clients(client, spec, *paths, folder, spec="a/cell", seed=1, device="cpu")
        found[name] = Private.read(folder / "private.h5"), Update.read(folder / "update.h5")
    (private, update), (plain, _) = found["random"], found["plain"]
    assert np.array_equal(private.indices, plain.indices)
    assert private.inputs.shape == plain.inputs.shape
    assert not np.array_equal(private.inputs, plain.inputs)
    assert private.perturbation.max() < (1e-6 if "soteria" not in defense else 1)
    again = parse("client", "fedsgd+batch_size=2+victims=3")
    if defense == "none":
        network = load_network(Model.read(source / "model.h5"), "model.h5")
        for victim, (x, y) in enumerate(zip(private.inputs, private.labels, strict=True)):
            expected = again.compute(network, torch.from_numpy(x), torch.from_numpy(y))
            for name, value in expected.items():
                sent = update.update[name].decode()[victim]
                np.testing.assert_allclose(sent, value.detach().numpy(), atol=1e-7)


def test_what_cannot_be_augmented_is_refused() -> None:
    tables = parse("client", "fedsgd+augmentation=crop")
    with pytest.raises(IncompatibleError, match="breast_cancer are none; leave augmentation out"):
        tables.check(parse("dataset", "breast_cancer"))
    with pytest.raises(IncompatibleError, match=r"have shape \(30,\); leave augmentation out"):
        augmented(torch.rand(2, 30), "flip")
    with pytest.raises(SpecError, match=r"draws anew for every update.*use client fedavg"):
        parse("client", "epochs+augmentation=flip")
    with pytest.raises(SpecError, match="'augmentation' = 'flip'"):
        parse("client", "captured+augmentation=flip")
