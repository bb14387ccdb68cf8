from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gleak.registry import load, parse

NAMES = sorted(load("start"))
SHAPES = [(2, 3, 8, 8), (1, 1, 7, 5), (3, 13)]


def stream(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", SHAPES)
def test_starts_have_the_samples_shape_and_follow_the_stream(
    name: str, shape: tuple[int, ...]
) -> None:
    start = parse("start", name)
    first, again, other = (start.draw(shape, stream(seed), {}) for seed in (0, 0, 1))
    assert first.shape == shape
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@given(st.integers(1, 6), st.integers(1, 20), st.integers(1, 20))
def test_a_patterned_image_repeats_its_corner(tiles: int, height: int, width: int) -> None:
    image = parse("start", f"patterned+tiles={tiles}").draw((2, 3, height, width), stream(), {})
    down, across = math.ceil(height / tiles), math.ceil(width / tiles)
    for row in range(height):
        for column in range(width):
            corner = image[..., row % down, column % across]
            assert torch.equal(image[..., row, column], corner)
    assert len(image[0].unique()) == 3 * down * across


@given(st.integers(1, 4), st.integers(1, 40))
def test_a_patterned_row_repeats_its_beginning(tiles: int, columns: int) -> None:
    rows = parse("start", f"patterned+tiles={tiles}").draw((2, columns), stream(), {})
    period = math.ceil(columns / tiles**2)
    assert torch.equal(rows, rows[:, torch.arange(columns) % period])
    assert len(rows.unique()) == 2 * period


def test_samples_of_a_batch_differ() -> None:
    for name in NAMES:
        first, second = parse("start", name).draw((2, 3, 8, 8), stream(), {})
        assert not torch.equal(first, second)


def test_normal_and_uniform_values_are_what_they_are_called() -> None:
    normal, uniform = (
        parse("start", name).draw((100, 900), stream(), {}) for name in ("normal", "uniform")
    )
    assert abs(normal.mean()) < 0.02
    assert abs(normal.std() - 1) < 0.02
    assert 0 <= uniform.min() < 1e-3
    assert 1 - 1e-3 < uniform.max() < 1
    assert abs(uniform.std() - 12**-0.5) < 0.01
