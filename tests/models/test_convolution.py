from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gleak.models.base import Convolution


@given(
    kernel=st.sampled_from([1, 3, 5, 7]),
    stride=st.integers(1, 3),
    padded=st.booleans(),
    spare=st.tuples(st.integers(0, 8), st.integers(0, 8)),
)
def test_a_described_convolution_is_the_built_one(
    kernel: int, stride: int, padded: bool, spare: tuple[int, int]
) -> None:
    """Images are at least one pixel, or the kernel, large."""
    described = Convolution(2, 3, kernel, stride, padded)
    built = described.layer()
    least = 1 if padded else kernel
    sides = tuple(least + more for more in spare)
    assert built.weight.numel() == described.weights
    assert built(torch.zeros(1, 2, *sides)).shape == (1, 3, *described.sides(sides))


@pytest.mark.parametrize(("padded", "sides"), [(True, (7, 4)), (False, (5, 2))])
def test_what_is_padded_keeps_its_size(padded: bool, sides: tuple[int, ...]) -> None:
    assert Convolution(1, 1, 3, padded=padded).sides((7, 4)) == sides
