from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import gleak
from gleak.artifacts.protocol import Protocol
from gleak.attacks.first_layer import output_slopes, read_inputs
from gleak.attacks.observation import Observation
from gleak.core.errors import IncompatibleError
from gleak.core.registry import parse
from gleak.models.base import Activation
from gleak.models.layer_search import layer_of_samples
from gleak.models.layers import GaussianSample
from tests.attacks.cases import Make, natural_images

SHAPE = (2, 3, 4)
IMAGE = (3, 8, 8)
FEATURES = 24


def gradients(output_gradients: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Compute a dense layer's weight and bias gradients from those at its outputs; (V, N, ...)."""
    return output_gradients.mT @ inputs, output_gradients.sum(1)


def randoms(seed: int, *shapes: tuple[int, ...]) -> list[Tensor]:
    stream = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=stream, dtype=torch.double) for shape in shapes]


@given(st.integers(1, 4), st.integers(1, 6), st.integers(1, 5), st.integers(0, 99))
def test_the_input_of_one_sample_is_exact(
    victims: int, neurons: int, features: int, seed: int
) -> None:
    output_gradients, inputs = randoms(seed, (victims, 1, neurons), (victims, 1, features))
    torch.testing.assert_close(read_inputs(*gradients(output_gradients, inputs), 1), inputs)


def test_of_one_sample_the_estimate_is_that_of_least_squares() -> None:
    weight, bias = randoms(0, (3, 6, 5), (3, 6))
    expected = torch.linalg.lstsq(bias[..., None], weight).solution
    torch.testing.assert_close(read_inputs(weight, bias, 1), expected)


@given(st.integers(2, 5), st.integers(1, 8), st.integers(0, 99))
def test_candidates_of_a_batch_are_mixtures_with_weights_that_sum_to_one(
    samples: int, neurons: int, seed: int
) -> None:
    output_gradients, inputs = randoms(seed, (2, samples, neurons), (2, samples, 9))
    ones = torch.cat([inputs, torch.ones_like(inputs[..., :1])], 2)
    found = read_inputs(*gradients(output_gradients, ones), samples)
    assert found.shape == (2, samples, 10)
    torch.testing.assert_close(found[..., -1], torch.ones_like(found[..., -1]))
    mixing = torch.linalg.lstsq(inputs.mT, found[..., :-1].mT)
    torch.testing.assert_close(inputs.mT @ mixing.solution, found[..., :-1].mT)


def test_candidates_come_from_the_neurons_with_the_largest_bias_gradients() -> None:
    weight, bias = torch.tensor([[[2.0], [9.0], [-8.0]]]), torch.tensor([[1.0, 3.0, -4.0]])
    assert read_inputs(weight, bias, 2).flatten().tolist() == [2.0, 3.0]
    assert read_inputs(weight, bias, 5).flatten().tolist() == [2.0, 3.0, 2.0, 2.0, 3.0]


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_the_size_of_the_gradient_does_not_matter(scale: float) -> None:
    output_gradients, inputs = (value.float() for value in randoms(1, (1, 1, 4), (1, 1, 3)))
    torch.testing.assert_close(read_inputs(*gradients(output_gradients * scale, inputs), 1), inputs)


class Backwards(nn.Module):
    """Its dense layer of samples, which it changes first, is the second it names."""

    def __init__(self, change: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.last, self.first, self.change = nn.Linear(5, 3), nn.Linear(FEATURES, 5), change

    def forward(self, inputs: Tensor) -> Tensor:
        return self.last(self.first(self.change(inputs.flatten(1))).relu())


class Twice(Backwards):
    """A network that uses a layer twice."""

    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs) + super().forward(inputs)


def test_the_layer_is_found_by_what_it_takes() -> None:
    assert layer_of_samples(Backwards(torch.clone), SHAPE)[0] == "first"
    assert layer_of_samples(Backwards(lambda samples: 2 * samples - 1), SHAPE)[0] == "first"
    perceptron = nn.Sequential(nn.Flatten(), nn.Linear(FEATURES, FEATURES), nn.Linear(FEATURES, 2))
    assert layer_of_samples(perceptron, SHAPE)[0] == "1"


@pytest.mark.parametrize(
    "model",
    [
        Twice(torch.clone),
        Backwards(torch.square),
        nn.Sequential(nn.Flatten(), nn.Linear(FEATURES, 3, bias=False)),
        nn.Sequential(nn.Conv2d(2, 2, 1), nn.Flatten(), nn.Linear(FEATURES, 3)),
        nn.Sequential(nn.Linear(4, 4), nn.Flatten(), nn.Linear(FEATURES, 3)),
    ],
    ids=["used twice", "squared first", "no bias", "convolution", "along the width alone"],
)
def test_a_model_without_such_a_layer_is_refused(model: nn.Module) -> None:
    with pytest.raises(IncompatibleError, match="use fc2 or mlp"):
        layer_of_samples(model, SHAPE)


@pytest.mark.parametrize(("attack", "size"), [("aono", 1), ("spear", 3)])
@pytest.mark.parametrize("normalise", ["none", "imagenet"])
def test_normalised_samples_are_recovered_as_the_samples_they_are(
    attack: str, size: int, normalise: str
) -> None:
    torch.manual_seed(0)
    samples = torch.rand(size, 3, 8, 8)
    model = parse("model", f"fc2+hidden=64+normalise={normalise}").build((3, 8, 8), 4)
    update = gleak.compute_update(model, samples, torch.arange(size))
    found = gleak.attack(attack, model, update, (3, 8, 8), batch_size=size)
    assert gleak.score(found, samples)["mse"] < 1e-8


class OfOwnMaximum(nn.Module):
    """A dense network of samples divided by their largest value, as some preprocess images."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(48, 96), nn.Linear(96, 4)

    def forward(self, inputs: Tensor) -> Tensor:
        bright = inputs / inputs.amax((1, 2, 3), keepdim=True).clamp(min=1e-6)
        return self.head(self.body(bright.flatten(1)).relu())


def test_the_brightness_alone_is_lost_where_samples_are_divided_by_their_maximum() -> None:
    torch.manual_seed(0)
    model, images = OfOwnMaximum(), torch.rand(3, 3, 4, 4)
    update = gleak.compute_update(model, 0.4 * images, [0, 1, 2])
    found = gleak.attack("spear+rounds=12", model, update, (3, 4, 4), batch_size=3)
    full_range = images / images.amax((1, 2, 3), keepdim=True)
    assert gleak.score(found, full_range)["psnr"] > 80


class WideAndDeep(nn.Module):
    """A network in which the samples bypass the first dense layer, with a penalty behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.deep, self.wide = nn.Linear(FEATURES, 6), nn.Linear(FEATURES, 3, bias=False)
        self.sample, self.head = GaussianSample(0.5), nn.Linear(3, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        flat = inputs.flatten(1)
        return self.head(self.sample(self.deep(flat))) + self.wide(flat)


def test_slopes_at_given_outputs_include_penalties_and_what_bypasses_the_layer() -> None:
    torch.manual_seed(0)
    network, inputs, labels = WideAndDeep().eval(), torch.rand(5, *SHAPE), torch.arange(5) % 3
    outputs = network.deep(inputs.flatten(1)).detach().requires_grad_()
    logits = network.head(network.sample(outputs)) + network.wide(inputs.flatten(1))
    losses = torch.nn.functional.cross_entropy(logits, labels, reduction="sum")
    penalty = network.sample.penalty(outputs).sum()
    (expected,) = torch.autograd.grad(losses + penalty, outputs)
    seen = Observation(
        update={},
        sent={},
        model=network.requires_grad_(False),
        modality="image",
        input_shape=SHAPE,
        classes=3,
        protocol=Protocol(),
        granted={},
        victim_ids=np.arange(1),
        seed=0,
    )
    torch.testing.assert_close(output_slopes(seen, "deep", inputs, labels), expected)
    others = torch.rand(5, *SHAPE)
    assert not torch.allclose(output_slopes(seen, "deep", others, labels, outputs), expected)
    torch.testing.assert_close(output_slopes(seen, "deep", inputs, labels, outputs), expected)


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


@pytest.mark.parametrize("modality", ["image", "tabular"])
def test_where_weight_and_bias_are_clipped_apart_the_largest_value_is_one(
    make_case: Make, modality: str
) -> None:
    seen, truth = make_case(AONO, modality, MLP)
    update = {name: value * (1 + place) for place, (name, value) in enumerate(seen.update.items())}
    clipped = replace(seen.protocol, clipping="parameter")
    seen = replace(seen, update=update, protocol=clipped)
    found = AONO.reconstruct(seen).inputs
    expected = truth.inputs / truth.inputs.max((*range(1, found.ndim),), keepdims=True)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    if modality == "image":
        with pytest.raises(IncompatibleError, match="singular_vectors"):
            AONO.check_observation(seen)
    else:
        AONO.check_observation(seen)


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


@pytest.mark.parametrize("attack", ["aono", "singular_vectors"])
@pytest.mark.parametrize("model", ["fc2", "fc2+normalise=imagenet"])
def test_an_image_whose_weight_and_bias_were_clipped_apart_fills_its_range(
    attack: str, model: str
) -> None:
    network = parse("model", model).build(IMAGE, 4).eval()
    image = natural_images(1, IMAGE)
    image = (image - image.min()) / (image.max() - image.min())
    defense = "fedcdp+snr=none+sigma=0+clip=0.01"
    update = gleak.compute_update(network, image, [1], defense=defense)
    found = gleak.attack(attack, network, update, IMAGE, defense=defense, device="cpu")
    np.testing.assert_allclose(found.inputs, image, atol=1e-3)


@pytest.mark.parametrize("attack", ["aono", "singular_vectors"])
def test_a_gradient_that_was_too_short_to_be_clipped_tells_the_scale(attack: str) -> None:
    network = parse("model", "fc2").build(IMAGE, 4).eval()
    image, defense = natural_images(1, IMAGE) / 2, "fedcdp+snr=none+sigma=0+clip=100"
    update = gleak.compute_update(network, image, [1], defense=defense)
    found = gleak.attack(attack, network, update, IMAGE, defense=defense, device="cpu")
    np.testing.assert_allclose(found.inputs, image, atol=1e-3)


def test_after_the_clipping_of_a_step_no_parameter_is_known_to_be_whole() -> None:
    """Fed-CDP clips each parameter first, and the client's optimiser the whole gradient then."""
    network = parse("model", "fc2").build(IMAGE, 4).eval()
    image, defense = natural_images(1, IMAGE) / 2, "fedcdp+snr=none+sigma=0+clip=100"
    client = "fedavg+clip_norm=0.1"
    update = gleak.compute_update(network, image, [1], client=client, defense=defense)
    found = gleak.attack("best+budget=1", network, update, IMAGE, client=client, defense=defense)
    assert "singular_vectors" in next(
        one.reason for one in found.candidates if one.attack == "aono"
    )
