from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gleak.artifacts.knowledge import Knowledge
from gleak.core.errors import IncompatibleError
from gleak.core.registry import parse
from gleak.data.prepare import prepare_dataset
from gleak.knowledge.codec import CODE_CHANNELS, Codec
from gleak.knowledge.codec_network import with_channels
from gleak.knowledge.train import train_knowledge


@pytest.mark.parametrize(("size", "side"), [(8192, 32), (2048, 16), (512, 8)])
def test_the_papers_codes_are_pictures_of_eight_channels(size: int, side: int) -> None:
    plan = Codec(size=size).plan((3, 128, 128))
    assert (plan.code, plan.sides[-1]) == (CODE_CHANNELS, (side, side))


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


def test_a_code_no_shorter_than_the_image_is_refused() -> None:
    with pytest.raises(
        IncompatibleError, match="codes of 48 numbers are no shorter than images of 48"
    ):
        Codec(size=48).check_shape((3, 4, 4))


@given(st.integers(1, 5), st.integers(1, 5))
def test_channels_are_cut_or_filled_with_zeros(have: int, want: int) -> None:
    found = with_channels(torch.ones(2, have, 3, 3), want)
    assert found.shape == (2, want, 3, 3)
    assert found.sum() == 2 * min(have, want) * 9
    assert found[:, : min(have, want)].min() == 1


def test_training_makes_the_error_smaller(tmp_path: Path) -> None:
    digits = parse("dataset", "digits")
    prepare_dataset(digits, tmp_path, 0, tmp_path / "dataset.h5")
    output, spec = tmp_path / "knowledge.h5", Codec(size=64, width=8, steps=60)
    train_knowledge(spec, tmp_path / "dataset.h5", output, seed=0, device="cpu")
    losses = Knowledge.read(output).losses["mse"]
    assert losses[-5:].mean() < 0.7 * losses[:5].mean()
