from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from scipy.ndimage import gaussian_filter
from torch import Tensor

from gleak.core.registry import parse
from gleak.data.natural_images import ImagePrior
from gleak.knowledge.denoiser import LEAST, MOST, Denoiser
from gleak.knowledge.networks import GradientStepDenoiser


def draw(*shape: int) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(0), dtype=torch.double)


def noisy(images: Tensor, deviation: float) -> Tensor:
    random = torch.Generator().manual_seed(1)
    return images + deviation * torch.randn(images.shape, generator=random).to(images)


@pytest.mark.parametrize("shape", [(3, 8, 8), (1, 32, 32), (2, 7, 10)])
def test_before_training_it_is_the_wiener_filter_of_natural_images(shape: tuple[int, ...]) -> None:
    network, images = Denoiser(width=2).build(shape, 4).double(), draw(2, *shape)
    prior = ImagePrior.natural(shape, images)
    for deviation in (0.02, 0.3):
        precision = torch.eye(2).double() / deviation**2
        oracle = prior.denoise(precision, images.flatten(1) / deviation**2).images
        found = network.denoise(images, images.new_full((2,), deviation))
        torch.testing.assert_close(found.flatten(1), oracle)


@pytest.mark.parametrize("shape", [(3, 8, 8), (1, 5, 6)])
def test_a_step_is_along_the_gradient_of_the_energy(shape: tuple[int, ...]) -> None:
    network = GradientStepDenoiser(shape[0], 4).double().eval()
    torch.nn.init.normal_(network.last.weight, 0, 0.1)
    images, deviations = draw(3, *shape), torch.tensor([0.01, 0.1, 0.5]).double()
    along, reach = torch.randn(3, *shape, dtype=torch.double), 1e-5
    ahead, behind = (network.energy(images + h * along, deviations) for h in (reach, -reach))
    step = images - network.denoise(images, deviations)
    slope = (step * along).sum((1, 2, 3))
    torch.testing.assert_close(slope, (ahead - behind) / (2 * reach), rtol=1e-6, atol=1e-8)


def test_it_learns_more_than_smoothing_does(learn_digits: Callable, tmp_path: Path) -> None:
    spec = Denoiser(width=8, lr=4e-3, steps=100)
    network, stored = learn_digits(spec)
    digits = parse("dataset", "digits").load(tmp_path, 0)
    clear = torch.from_numpy(digits.samples("test", slice(60)))
    for deviation in (0.1, 0.3):
        given = noisy(clear, deviation)
        found = network(given, torch.full((60,), deviation))
        before = spec.build(digits.shape, 10).eval()(given, torch.full((60,), deviation))
        blurs = [gaussian_filter(given.numpy(), width, axes=(2, 3)) for width in (0.3, 0.5, 0.8)]
        others = [given, before, *map(torch.from_numpy, blurs)]
        least = min(float((other - clear).square().mean()) for other in others)
        assert (found - clear).square().mean() < 0.8 * least
    assert stored.losses["relative_mse"][-1] < stored.losses["relative_mse"][0]


def test_noise_of_every_size_is_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer, seen = Denoiser(width=2).trainer((1, 8, 8), 4), []
    denoise = trainer.network.denoise
    monkeypatch.setattr(
        trainer.network, "denoise", lambda *inputs: [seen.append(inputs[1]), denoise(*inputs)][1]
    )
    trainer.learn(draw(200, 1, 8, 8).float(), torch.zeros(200), torch.Generator().manual_seed(0))
    (deviations,) = seen
    assert deviations.min() >= LEAST
    assert deviations.max() <= MOST
    middle = (LEAST * MOST) ** 0.5
    assert 0.4 < float((deviations < middle).float().mean()) < 0.6
