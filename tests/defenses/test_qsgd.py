from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gleak.artifacts.encodings import Quantized
from gleak.core.registry import parse

DRAWS = 4000


def drawn(spec: str, values: torch.Tensor, draws: int = DRAWS) -> Quantized:
    """As many rounds of the same values; Shape (1, draws, *shape)."""
    rounds = values.expand(draws, *values.shape)
    stream = torch.Generator().manual_seed(0)
    sent = parse("defense", spec).protect({"w": rounds}, stream, {})["w"]
    assert isinstance(sent, Quantized)
    return sent


@pytest.mark.parametrize("norm", ["max", "l2"])
@pytest.mark.parametrize("bits", [2, 3, 8])
def test_the_mean_of_many_draws_is_the_value(bits: int, norm: str) -> None:
    """The variance of a draw is p (1 - p) levels squared (ROG Equation 7); 5 standard errors."""
    values = torch.linspace(-2, 3, 41)
    sent = drawn(f"qsgd+bits={bits}+norm={norm}", values)
    level, mean = sent.scales[0, 0], sent.decode()[0].mean(0, dtype=np.float64)
    place = np.abs(values.numpy().astype(np.float64)) / level
    spread = np.sqrt((place % 1) * (1 - place % 1) / DRAWS)
    assert (np.abs(mean - values.numpy()) <= level * (5 * spread + 1e-3)).all()


def test_only_the_two_levels_around_a_value_are_sent() -> None:
    values = torch.linspace(-3, 3, 61)
    codes = drawn("qsgd", values).codes[0]
    assert (codes >= np.floor(values.numpy() - 1e-5)).all()
    assert (codes <= np.ceil(values.numpy() + 1e-5)).all()
    assert np.isin(np.unique(codes), range(-3, 4)).all()


@given(st.integers(1, 300))
def test_of_equal_values_the_length_makes_few_codes(size: int) -> None:
    """|g_i| / ||g|| is one over the root of the size, so about sqrt(size) s codes are not zero."""
    codes = drawn("qsgd+norm=l2", torch.ones(size), 1).codes
    expected, share = 3 * math.sqrt(size), (3 / math.sqrt(size)) % 1
    spread = math.sqrt(size * share * (1 - share))
    assert abs(codes.sum() - expected) <= 5 * spread + 1


def test_draws_differ_between_rounds() -> None:
    codes = drawn("qsgd", torch.linspace(-1, 1, 50), 20).codes[0]
    assert len({row.tobytes() for row in codes}) == 20
