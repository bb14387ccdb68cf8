from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.ndimage import gaussian_filter
from torch import Generator, Tensor

from gleak.knowledge.degradation import MODES, add_noise, degrade, gaussian_blur, rescale

NOTHING = {"scale": 1, "noise": 0.0, "blur": 0.0}


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


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_images_stay_images_and_become_worse(channels: int) -> None:
    images = draw(6, channels, 16, 16)
    found = degrade(images, seeded(), scale=4, noise=0.1, blur=2.0)
    assert found.shape == images.shape
    assert 0 <= found.min() <= found.max() <= 1
    assert ((found - images).abs().mean((1, 2, 3)) > 0.02).all()


def test_what_is_not_asked_for_is_not_done() -> None:
    images = draw(4, 3, 8, 8)
    torch.testing.assert_close(degrade(images, seeded(), **NOTHING), images)


@pytest.mark.parametrize("way", [{"noise": 0.1}, {"blur": 2.0}, {"scale": 4}])
def test_the_generator_decides(way: dict[str, float]) -> None:
    images = draw(8, 1, 16, 16)
    first, again, other = (
        degrade(images, seeded(seed), **{**NOTHING, **way}) for seed in (1, 1, 2)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_each_image_is_degraded_in_an_order_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """All six orders of three ways are among those of many images."""
    orders: list[list[str]] = []

    def noting(name: str) -> Callable[..., Tensor]:
        def way(image: Tensor, *_: object) -> Tensor:
            if not orders or len(orders[-1]) == 3:
                orders.append([])
            orders[-1].append(name)
            return image

        return way

    for name in ("rescale", "add_noise", "gaussian_blur"):
        monkeypatch.setattr(f"gleak.knowledge.degradation.{name}", noting(name))
    degrade(draw(100, 1, 8, 8), seeded(), scale=4, noise=0.1, blur=1.0)
    assert len(orders) == 100
    assert len(set(map(tuple, orders))) == 6
