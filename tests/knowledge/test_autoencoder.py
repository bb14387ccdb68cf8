from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gleak.core.errors import IncompatibleError
from gleak.core.registry import parse
from gleak.knowledge.autoencoder import (
    CODE_CHANNELS,
    Codec,
    DecoderTrainer,
    Generator,
    divergence,
)


@pytest.mark.parametrize(("size", "side"), [(8192, 32), (2048, 16), (512, 8)])
def test_the_papers_codes_are_pictures_of_eight_channels(size: int, side: int) -> None:
    spec, shape = Codec(size=size), (3, 128, 128)
    found = spec.code_channels(shape), spec.pyramid(shape).sides[-1]
    assert found == (CODE_CHANNELS, (side, side))


@given(
    st.tuples(st.integers(1, 4), st.integers(5, 40), st.integers(5, 40)),
    st.floats(0, 1, exclude_max=True),
)
def test_a_code_has_as_many_numbers_as_asked_for(shape: tuple[int, ...], share: float) -> None:
    size = max(1, int(share * math.prod(shape)))
    spec = Codec(size=size, width=2)
    spec.check_shape(shape)
    network = spec.build(shape, 4)
    with torch.no_grad():
        codes = network.encode(torch.rand(2, *shape))
        images = network.decode(codes)
    assert codes.shape == (2, size)
    assert images.shape == (2, *shape)
    assert 0 <= images.min() <= images.max() <= 1


def test_before_training_a_code_is_the_image_scaled_down() -> None:
    network = Codec(size=3 * 8 * 8, width=4).build((3, 16, 16), 4)
    blocks = 0.1 + 0.8 * torch.rand(2, 3, 8, 8)
    images = blocks.repeat_interleave(2, 2).repeat_interleave(2, 3)
    with torch.no_grad():
        torch.testing.assert_close(network(images), images)


@given(
    st.tuples(st.integers(1, 4), st.integers(4, 40), st.integers(4, 40)),
    st.integers(4, 200),
    st.integers(1, 5),
)
def test_codes_and_classes_make_images(shape: tuple[int, ...], size: int, classes: int) -> None:
    network = Generator(size=size, width=2).build(shape, classes)
    assert (network.code_size, network.classes) == (size, classes)
    with torch.no_grad():
        images = network.generate(torch.randn(2, size), torch.tensor([0, classes - 1]))
    assert images.shape == (2, *shape)
    assert 0 <= images.min() <= images.max() <= 1


def test_before_training_an_image_scaled_down_comes_back() -> None:
    spec = Generator(size=3 * 4 * 4 + 5, width=4)
    trainer = spec.trainer((3, 16, 16), 2)
    assert isinstance(trainer, DecoderTrainer)
    blocks = 0.1 + 0.8 * torch.rand(2, 3, 4, 4)
    images, labels = blocks.repeat_interleave(4, 2).repeat_interleave(4, 3), torch.tensor([1, 0])
    with torch.no_grad():
        codes, log_variance = trainer.encoder(images, labels, trainer.network.pictures(labels))
        torch.testing.assert_close(trainer.network.generate(codes, labels), images)
    assert log_variance.shape == codes.shape == (2, spec.size)


@given(st.floats(-3, 3), st.floats(-4, 2))
def test_the_divergence_is_that_of_normal_distributions(mean: float, log_variance: float) -> None:
    one, other = (
        torch.distributions.Normal(*map(torch.tensor, words))
        for words in ((mean, math.exp(log_variance / 2)), (0.0, 1.0))
    )
    expected = 3 * torch.distributions.kl_divergence(one, other)
    found = divergence(torch.full((1, 3), mean), torch.full((1, 3), log_variance))
    torch.testing.assert_close(found, expected[None], rtol=1e-4, atol=1e-5)


def test_random_codes_give_images_of_their_class(learn_digits: Callable, tmp_path: Path) -> None:
    """The mean image of random codes, and that of the most likely code, match the class mean."""
    network, knowledge = learn_digits(Generator(size=64, width=8, steps=250, lr=3e-3))
    losses = knowledge.losses["mse"]
    assert losses[-10:].mean() < 0.6 * losses[:10].mean()
    digits = parse("dataset", "digits").load(tmp_path, 0)
    classes, random = torch.arange(10), torch.Generator().manual_seed(0)
    codes = torch.randn(400, network.code_size, generator=random)
    with torch.no_grad():
        drawn = network.generate(codes, classes.repeat_interleave(40)).unflatten(0, (10, 40))
        likeliest = network.generate(torch.zeros(10, network.code_size), classes)
    true = torch.from_numpy(digits.samples("test")).flatten(1)
    means = torch.stack([true[digits.test_labels == label].mean(0) for label in range(10)])
    for images in (drawn.mean(1), likeliest):
        closest = torch.cdist(images.flatten(1), means).argmin(1)
        assert (closest == classes).float().mean() >= 0.8


def test_codes_too_long_or_too_short_are_refused() -> None:
    with pytest.raises(IncompatibleError, match="48 values are not shorter than images of 48"):
        Codec(size=48).check_shape((3, 4, 4))
    with pytest.raises(IncompatibleError, match="codes of 2 values are too short for 3 channels"):
        Generator(size=2).check_shape((3, 8, 8))


def test_classes_of_another_dataset_are_refused() -> None:
    victims, client = parse("dataset", "cifar10"), parse("client", "fedsgd")
    parse("knowledge", "generator").check_victims(victims, client)
    parse("knowledge", "generator+public=cifar10").check_victims(victims, client)
    with pytest.raises(IncompatibleError, match="classes of photos, but the victims' classes are"):
        parse("knowledge", "generator+public=photos").check_victims(victims, client)
