from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.ndimage import gaussian_filter
from torch import Generator, Tensor

from gleak.core.errors import IncompatibleError
from gleak.core.registry import parse
from gleak.knowledge.postprocessor import (
    MODES,
    Postprocessor,
    add_noise,
    degrade,
    gaussian_blur,
    patch_discriminator,
    rescale,
)


@pytest.mark.parametrize(
    ("side", "deepest"), [(8, 4), (16, 4), (32, 4), (64, 4), (128, 8), (100, 7)]
)
def test_four_halvings_where_the_side_allows_them(side: int, deepest: int) -> None:
    sides = Postprocessor(width=2).pyramid((3, side, side)).sides
    assert sides[-1] == (deepest, deepest)
    assert len(sides) <= 5


@pytest.mark.parametrize("side", [8, 16, 37, 128])
def test_the_discriminator_judges_patches(side: int) -> None:
    judge = patch_discriminator(Postprocessor(width=2).pyramid((1, side, side)))
    logits = judge(torch.rand(2, 1, side, side))
    assert logits.shape[:2] == (2, 1)
    assert 4 <= min(logits.shape[2:]) <= max(logits.shape[2:]) <= max(4, side // 2)


def test_both_networks_learn_from_each_other_and_images_stay_before() -> None:
    trainer, images = Postprocessor(width=4, lr=1e-3).trainer((1, 16, 16), 4), draw(4, 1, 16, 16)
    with torch.no_grad():
        assert torch.equal(trainer.network(images), images)
    trainer.network.last.weight.data.normal_(0, 0.01)
    before = {name: value.clone() for name, value in trainer.networks.named_parameters()}
    trainer.learn(images, torch.arange(4), seeded())
    after = dict(trainer.networks.named_parameters())
    still = {name for name in before if torch.equal(before[name], after[name])}
    parts = {name.partition(".")[0] for name in before}
    assert parts == {"network", "discriminator"}
    assert all(name.endswith("bias") for name in still)  # those that a normalisation takes out


@pytest.mark.slow
def test_degraded_digits_become_better(learn_digits: Callable, tmp_path: Path) -> None:
    network, _ = learn_digits(Postprocessor(width=8, lr=2e-3, steps=80, blur=1.0))
    digits = parse("dataset", "digits").load(tmp_path, 0)
    clear = torch.from_numpy(digits.samples("test", slice(60)))
    coarse = degrade(clear, seeded(), scale=4, noise=0.1, blur=1.0)
    with torch.no_grad():
        error = (network(coarse) - clear).abs().mean()
    assert error < 0.8 * (coarse - clear).abs().mean()


def test_images_too_small_are_refused() -> None:
    with pytest.raises(IncompatibleError, match=r"of 8 pixels or more, not \(1, 7, 9\)"):
        Postprocessor().check_shape((1, 7, 9))
    with pytest.raises(IncompatibleError, match="needs images of 12 pixels or more"):
        Postprocessor(scale=12).check_shape((1, 8, 8))


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(shape, generator=seeded(seed))


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


@given(st.floats(0.2, 3.0))
def test_blur_is_that_of_scipy(deviation: float) -> None:
    images = draw(2, 3, 12, 9).double()
    expected = gaussian_filter(
        images.numpy(), deviation, mode="nearest", radius=round(3 * deviation), axes=(2, 3)
    )
    np.testing.assert_allclose(gaussian_blur(images, deviation), expected, atol=1e-6)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("sides", [(16, 16), (13, 18), (5, 4)])
def test_scaling_keeps_the_shape_and_flat_images(mode: str, sides: tuple[int, int]) -> None:
    images = draw(2, 3, *sides)
    found = rescale(images, 4, mode)
    assert found.shape == images.shape
    assert not torch.allclose(found, images)
    flat = torch.full_like(images, 0.3)
    torch.testing.assert_close(rescale(flat, 4, mode), flat)


def test_noise_has_the_deviation_asked_for() -> None:
    images = draw(1, 3, 64, 64)
    noise = add_noise(images, 0.2, seeded()) - images
    assert noise.std() == pytest.approx(0.2, rel=0.05)
    assert noise.mean() == pytest.approx(0, abs=0.01)


@pytest.mark.parametrize("way", [{"noise": 0.1}, {"blur": 2.0}, {"scale": 4}])
def test_images_stay_images_and_the_generator_decides_how_they_become_worse(
    way: dict[str, float],
) -> None:
    images = draw(8, 3, 16, 16)
    settings = {"scale": 1, "noise": 0.0, "blur": 0.0, **way}
    first, again, other = (degrade(images, seeded(seed), **settings) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert 0 <= first.min() <= first.max() <= 1
    assert first.shape == images.shape
    assert (first - images).abs().mean() > 0.02


def test_each_image_is_degraded_in_an_order_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """All six orders of three degradations occur among many images."""
    orders: list[list[str]] = []

    def noting(name: str) -> Callable[..., Tensor]:
        def way(image: Tensor, *_: object) -> Tensor:
            if not orders or len(orders[-1]) == 3:
                orders.append([])
            orders[-1].append(name)
            return image

        return way

    for name in ("rescale", "add_noise", "gaussian_blur"):
        monkeypatch.setattr(f"gleak.knowledge.postprocessor.{name}", noting(name))
    degrade(draw(100, 1, 8, 8), seeded(), scale=4, noise=0.1, blur=1.0)
    assert len(orders) == 100
    assert len(set(map(tuple, orders))) == 6
