from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from gleak.metrics.base import MetricUnavailable
from gleak.metrics.reconstruction.lpips import Lpips
from gleak.runtime.perceptual import perceptual_network


def pair(channels: int, side: int) -> tuple[np.ndarray, np.ndarray]:
    truth, estimate = np.random.default_rng(0).random((2, 1, 2, channels, side, side))
    return truth, estimate


@pytest.mark.usefixtures("random_weights")
def test_agrees_with_a_direct_call(make_comparison):
    import torch

    truth, estimate = pair(3, 80)
    values = Lpips().measure(make_comparison(truth, estimate))
    network = perceptual_network()
    with torch.inference_mode():
        expected = network(
            torch.tensor(estimate[0]).float(), torch.tensor(truth[0]).float(), normalize=True
        )
    np.testing.assert_allclose(values[0], expected.flatten(), rtol=1e-4)


def test_the_network_holds_the_weights_of_the_file(random_weights: Path):
    import torch

    stored = torch.load(random_weights, weights_only=True)
    first = perceptual_network().net.slice1[0]
    assert torch.equal(first.weight, stored["features.0.weight"])


@pytest.mark.usefixtures("random_weights")
def test_grey_images_are_repeated_to_three_channels(make_comparison):
    truth, estimate = pair(1, 70)
    grey = Lpips().measure(make_comparison(truth, estimate))
    colour = Lpips().measure(make_comparison(truth.repeat(3, axis=2), estimate.repeat(3, axis=2)))
    np.testing.assert_array_equal(grey, colour)


@pytest.mark.usefixtures("random_weights")
def test_small_images_are_enlarged_to_64_pixels(make_comparison):
    import torch
    from torch.nn.functional import interpolate

    def enlarged(images: np.ndarray) -> np.ndarray:
        large = interpolate(torch.tensor(images[0]), size=(64, 64), mode="bilinear")
        return large.numpy()[None]

    truth, estimate = pair(3, 8)
    small = Lpips().measure(make_comparison(truth, estimate))
    large = Lpips().measure(make_comparison(enlarged(truth), enlarged(estimate)))
    np.testing.assert_allclose(small, large, rtol=1e-4)


def test_missing_weights_are_never_replaced(make_comparison, no_weights: Path):
    with pytest.raises(MetricUnavailable, match=re.escape(str(no_weights))) as raised:
        Lpips().measure(make_comparison(*pair(3, 64)))
    assert "squeezenet1_1-b8a52dc0.pth is missing; download it with: gleak weights" in str(
        raised.value
    )
    assert not no_weights.exists()


@pytest.mark.usefixtures("random_weights")
def test_two_channels_are_refused(make_comparison):
    with pytest.raises(MetricUnavailable, match="2 channels"):
        Lpips().measure(make_comparison(*pair(2, 64)))
