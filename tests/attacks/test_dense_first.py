from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from gleak.artifacts.private import Private
from gleak.attacks.observation import Observation
from gleak.core.errors import IncompatibleError
from gleak.core.registry import parse
from gleak.models.base import Activation

Make = Callable[..., tuple[Observation, Private]]
AONO = parse("attack", "aono")
MLP = "mlp+hidden=16"


@pytest.mark.parametrize("modality", ["image", "tabular"])
@pytest.mark.parametrize("activation", Activation.__args__)
def test_one_sample_and_its_label_are_recovered(
    make_case: Make, modality: str, activation: str
) -> None:
    seen, truth = make_case(AONO, modality, f"{MLP}+activation={activation}")
    found = AONO.reconstruct(seen)
    np.testing.assert_allclose(found.inputs, truth.inputs, atol=1e-5)
    assert np.array_equal(found.labels, truth.labels)
    assert found.converged.all()


@pytest.mark.parametrize("steps", [1, 3])
def test_one_sample_is_recovered_whatever_its_local_steps(make_case: Make, steps: int) -> None:
    seen, truth = make_case(AONO, model=MLP, client=f"fedavg+local_steps={steps}+local_lr=0.1")
    np.testing.assert_allclose(AONO.reconstruct(seen).inputs, truth.inputs, atol=1e-3)


def test_of_a_batch_come_mixtures_in_the_unit_range(make_case: Make) -> None:
    seen, truth = make_case(AONO, model=MLP, client="fedsgd+batch_size=3+victims=4")
    found = AONO.reconstruct(seen)
    assert found.inputs.shape == truth.inputs.shape
    weight, bias = seen.update["1.weight"][:, 0], seen.update["1.bias"][:, 0]
    every = (weight / bias[..., None]).clamp(0, 1).unflatten(2, truth.inputs.shape[2:]).numpy()
    for victim in range(4):
        gaps = np.abs(found.inputs[victim, :, None] - every[victim, None]).max((2, 3, 4))
        assert (gaps.min(1) < 1e-6).all()


def test_a_victim_whose_gradient_is_zero_is_mid_grey_and_has_not_converged(make_case: Make) -> None:
    seen, truth = make_case(AONO, model=MLP)
    update = {name: value.clone() for name, value in seen.update.items()}
    for value in update.values():
        value[1] = 0
    found = AONO.reconstruct(replace(seen, update=update))
    assert found.converged.tolist() == [True, False, True]
    assert (found.inputs[1] == 0.5).all()
    np.testing.assert_allclose(found.inputs[2], truth.inputs[2], atol=1e-5)


def test_noise_is_averaged_over_the_neurons(make_case: Make) -> None:
    seen, truth = make_case(AONO, model="mlp+hidden=512")
    noise = torch.Generator().manual_seed(0)
    size = 0.1 * seen.update["1.bias"].abs().mean()
    noisy = {
        name: value + size * torch.randn(value.shape, generator=noise)
        for name, value in seen.update.items()
    }
    error = np.abs(AONO.reconstruct(replace(seen, update=noisy)).inputs - truth.inputs).mean()
    ratios = (noisy["1.weight"] / noisy["1.bias"][..., None])[:, 0].clamp(0, 1)
    alone = (ratios - torch.from_numpy(truth.inputs).flatten(2)).abs().mean()
    assert error < 0.2 * alone


def test_models_that_begin_with_a_convolution_are_refused_before_any_work(
    make_case: Make,
) -> None:
    digits, client = parse("dataset", "digits"), parse("client", "fedsgd")
    for name in ("mlp", "fc2", "custom"):
        AONO.check(digits, parse("model", name), client)
    with pytest.raises(
        IncompatibleError, match="model lenet begins with a convolution; use mlp or fc2"
    ):
        AONO.check(digits, parse("model", "lenet"), client)
    seen, _ = make_case(AONO)
    with pytest.raises(IncompatibleError, match="this model has none"):
        AONO.reconstruct(seen)
