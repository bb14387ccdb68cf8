from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gleak.metrics.base import MetricUnavailable
from gleak.metrics.reconstruction.lpips import Lpips
from gleak.metrics.reconstruction.oracle_sign import LpipsOracleSign
from gleak.runtime.hub_weights import checkpoint_path
from gleak.runtime.perceptual import BACKBONES, Net, perceptual_network
from gleak.runtime.torchvision_ops import ensure_operators


def pair(channels: int, side: int) -> tuple[np.ndarray, np.ndarray]:
    truth, estimate = np.random.default_rng(0).random((2, 1, 2, channels, side, side))
    return truth, estimate


@pytest.mark.usefixtures("random_weights")
def test_agrees_with_a_direct_call(make_comparison):
    truth, estimate = pair(3, 80)
    values = Lpips().measure(make_comparison(truth, estimate))
    network = perceptual_network()
    with torch.inference_mode():
        expected = network(
            torch.tensor(estimate[0]).float(), torch.tensor(truth[0]).float(), normalize=True
        )
    np.testing.assert_allclose(values[0], expected.flatten(), rtol=1e-4)


def test_the_network_holds_the_weights_of_the_file(random_weights: Path):
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
    from torch.nn.functional import interpolate

    def enlarged(images: np.ndarray) -> np.ndarray:
        large = interpolate(torch.tensor(images[0]), size=(64, 64), mode="bilinear")
        return large.numpy()[None]

    truth, estimate = pair(3, 8)
    small = Lpips().measure(make_comparison(truth, estimate))
    large = Lpips().measure(make_comparison(enlarged(truth), enlarged(estimate)))
    np.testing.assert_allclose(small, large, rtol=1e-4)


@pytest.mark.parametrize(
    ("net", "hint"),
    [
        ("squeeze", "squeezenet1_1-b8a52dc0.pth is missing; download it with: gleak weights"),
        ("alex", "alexnet-owt-7be5be79.pth is missing; download it with: gleak weights --net alex"),
        ("vgg", "vgg16-397923af.pth is missing; download it with: gleak weights --net vgg"),
    ],
)
def test_missing_weights_are_never_replaced(
    make_comparison, no_weights: Path, net: Net, hint: str
) -> None:
    with pytest.raises(MetricUnavailable, match=re.escape(str(no_weights))) as raised:
        Lpips(net=net).measure(make_comparison(*pair(3, 64)))
    assert str(raised.value).endswith(hint)
    assert not no_weights.exists()


@pytest.mark.parametrize("net", get_args(Net))
def test_digests_begin_as_the_names_of_the_files_say(net: Net) -> None:
    weights = BACKBONES[net].weights
    assert weights.name.endswith(f"-{weights.digest[:8]}.pth")
    assert len(weights.digest) == 64


def lpips_of_features(network: nn.Module, images: Tensor, others: Tensor) -> Tensor:
    """Zhang et al., equation 1: unit features, squared differences, linear weights, means."""
    differences: Tensor = torch.zeros(len(images))
    both = [network.net(network.scaling_layer(2 * batch - 1)) for batch in (images, others)]
    for layer, (one, other) in enumerate(zip(*both, strict=True)):
        units = [values / (values.norm(dim=1, keepdim=True) + 1e-10) for values in (one, other)]
        weighted = network.lins[layer].model[-1]((units[0] - units[1]) ** 2)
        differences = differences + weighted.mean(dim=(1, 2, 3))
    return differences


@pytest.mark.slow
@pytest.mark.parametrize(("net", "name"), [("alex", "alexnet"), ("vgg", "vgg16")])
def test_other_networks_are_read_from_their_own_files(
    make_comparison,
    net: Net,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Dense layers, which LPIPS does not use, are zeros without storage, so the file is small."""
    ensure_operators()
    from torchvision import models

    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setattr(nn.Linear, "reset_parameters", lambda _: None)
    state = models.get_model(name, weights=None).state_dict()
    dense = {n: torch.zeros(()).expand(v.shape) for n, v in state.items() if "classifier" in n}
    path = checkpoint_path(BACKBONES[net].file)
    path.parent.mkdir(parents=True)
    torch.save({**state, **dense}, path)
    truth, estimate = pair(3, 64)
    values = Lpips(net=net).measure(make_comparison(truth, estimate))
    images = (torch.tensor(batch[0]).float() for batch in (estimate, truth))
    expected = lpips_of_features(perceptual_network(net), *images)
    np.testing.assert_allclose(values[0], expected.flatten(), rtol=1e-4)


@pytest.mark.usefixtures("random_weights")
def test_the_formula_is_that_of_the_paper(make_comparison) -> None:
    truth, estimate = pair(3, 64)
    values = Lpips().measure(make_comparison(truth, estimate))
    images = (torch.tensor(batch[0]).float() for batch in (estimate, truth))
    expected = lpips_of_features(perceptual_network(), *images)
    np.testing.assert_allclose(values[0], expected, rtol=1e-4)


def test_the_oracle_of_the_sign_has_the_same_network() -> None:
    assert LpipsOracleSign(net="vgg").plain == Lpips(net="vgg")
    assert LpipsOracleSign(net="vgg").weights == {"vgg16-397923af.pth"}


@pytest.mark.usefixtures("random_weights")
def test_two_channels_are_refused(make_comparison):
    with pytest.raises(MetricUnavailable, match="2 channels"):
        Lpips().measure(make_comparison(*pair(2, 64)))
