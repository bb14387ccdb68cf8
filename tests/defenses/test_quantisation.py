"""What holds for every quantiser."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from gleak.artifacts.encodings import Quantized
from gleak.core.registry import parse

SPECS = ["quantize", "qsgd", "qsgd+norm=l2"]
SCOPES = ["tensor", "global"]
SHAPES = {"weight": (4, 2, 3), "bias": (4,), "scale": ()}


def update(seed: int, *scales: float) -> dict[str, Tensor]:
    """A round of each scale, in which every tensor has a size of its own."""
    numbers = torch.Generator().manual_seed(seed)
    return {
        name: torch.stack([10.0**place * s * torch.randn(shape, generator=numbers) for s in scales])
        for place, (name, shape) in enumerate(SHAPES.items())
    }


def protect(spec: str, sent: dict[str, Tensor], seed: int = 0) -> dict[str, Quantized]:
    stream = torch.Generator().manual_seed(seed)
    return parse("defense", spec).protect(sent, stream, {})


def norms(spec: str, scope: str, sent: dict[str, Tensor]) -> dict[str, np.ndarray]:
    """Of what each parameter is compared with; Shape (R)."""
    order = 2 if spec.endswith("l2") else np.inf
    flat = {name: value.double().reshape(len(value), -1).numpy() for name, value in sent.items()}
    if scope == "global":
        flat = dict.fromkeys(flat, np.concatenate(list(flat.values()), axis=1))
    return {name: np.linalg.norm(values, order, axis=1) for name, values in flat.items()}


def spec_of(spec: str, bits: int, scope: str) -> str:
    name, *rest = spec.split("+")
    return "+".join([name, f"bits={bits}", f"scope={scope}", *rest])


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("scope", SCOPES)
@given(seed=st.integers(0, 999), bits=st.integers(2, 8), scale=st.floats(1e-30, 1e20))
def test_values_lie_within_a_level_of_what_is_sent(
    spec: str, scope: str, seed: int, bits: int, scale: float
) -> None:
    sent, steps = update(seed, 1, scale), 2 ** (bits - 1) - 1
    heights = norms(spec, scope, sent)
    for name, encoded in protect(spec_of(spec, bits, scope), sent).items():
        assert encoded.codes.dtype == np.int8
        assert np.abs(encoded.codes).max() <= steps
        np.testing.assert_allclose(encoded.scales[0], heights[name] / steps, rtol=1e-6)
        level = encoded.scales[0].reshape(-1, *[1] * len(SHAPES[name]))
        error = np.abs(encoded.decode()[0] - sent[name].numpy())
        assert (error <= level * (1.001 if spec.startswith("qsgd") else 0.501)).all()


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("scope", SCOPES)
def test_zeros_stay_and_leave_other_rounds_alone(spec: str, scope: str) -> None:
    """One vector has one scale."""
    sent = protect(spec_of(spec, 8, scope), update(0, 1.0, 0.0))
    for name, encoded in sent.items():
        assert not encoded.codes[0, 1].any()
        assert encoded.scales[0, 1] == 0
        assert np.isfinite(encoded.decode()).all()
        assert encoded.codes[0, 0].any() or name != "scale"
    scales = {encoded.scales.tobytes() for encoded in sent.values()}
    assert len(scales) == (1 if scope == "global" else len(sent))


@pytest.mark.parametrize("spec", SPECS)
def test_codes_do_not_depend_on_the_scale(spec: str) -> None:
    """Powers of two are exact, so even draws fall the same way."""
    sent = update(1, 1.0)
    larger = {name: 1024 * value for name, value in sent.items()}
    one, other = protect(spec, sent), protect(spec, larger)
    for name in SHAPES:
        np.testing.assert_array_equal(one[name].codes, other[name].codes)
        np.testing.assert_array_equal(1024 * one[name].scales, other[name].scales)


def test_three_bits_are_seven_levels() -> None:
    values = torch.linspace(-3, 3, 601)[None]
    sent = protect("quantize", {"w": values})["w"]
    assert np.unique(sent.codes).tolist() == [-3, -2, -1, 0, 1, 2, 3]
    np.testing.assert_array_equal(sent.decode()[0], np.round(values.numpy()))


def drawn(spec: str, values: torch.Tensor, draws: int = 4000) -> Quantized:
    """As many rounds of the same values; Shape (1, draws, *shape)."""
    return protect(spec, {"w": values.expand(draws, *values.shape)})["w"]


@pytest.mark.parametrize("norm", ["max", "l2"])
@pytest.mark.parametrize("bits", [2, 3, 8])
def test_the_mean_of_many_draws_is_the_value(bits: int, norm: str) -> None:
    """The variance of a draw is p (1 - p) levels squared (ROG Equation 7); 5 standard errors."""
    values = torch.linspace(-2, 3, 41)
    sent = drawn(f"qsgd+bits={bits}+norm={norm}", values)
    level, mean = sent.scales[0, 0], sent.decode()[0].mean(0, dtype=np.float64)
    place = np.abs(values.numpy().astype(np.float64)) / level
    spread = np.sqrt((place % 1) * (1 - place % 1) / 4000)
    assert (np.abs(mean - values.numpy()) <= level * (5 * spread + 1e-3)).all()


@given(st.integers(1, 300))
def test_of_equal_values_the_length_makes_few_codes(size: int) -> None:
    """|g_i| / ||g|| is one over the root of the size, so about sqrt(size) s codes are not zero."""
    codes = drawn("qsgd+norm=l2", torch.ones(size), 1).codes
    expected, share = 3 * math.sqrt(size), (3 / math.sqrt(size)) % 1
    spread = math.sqrt(size * share * (1 - share))
    assert abs(codes.sum() - expected) <= 5 * spread + 1


@pytest.mark.parametrize("bits", [3, 6, 8])
@pytest.mark.parametrize("spec", SPECS)
def test_values_that_were_decoded_have_the_codes_with_which_they_were_sent(
    spec: str, bits: int
) -> None:
    """Of the length of a vector the highest code is not the last one, and is found."""
    sent = protect(f"{spec}+bits={bits}", update(1, 1.0, 0.0))
    decoded = {name: torch.from_numpy(one.decode()[0]) for name, one in sent.items()}
    again = parse("defense", f"{spec}+bits={bits}").encode_received(decoded)
    for name, one in sent.items():
        assert np.allclose(again[name].decode(), one.decode(), atol=1e-6)
        if spec != "qsgd+norm=l2":
            assert np.array_equal(again[name].codes, one.codes)


def test_small_codes_beside_a_large_one_are_kept() -> None:
    values = torch.tensor([[-126.0, 1, 2]])
    found = parse("defense", "qsgd+bits=8+norm=l2").encode_received({"w": values})["w"]
    assert found.codes.tolist() == [[[-126, 1, 2]]]


VALUES = st.lists(st.floats(-(2.0**99), 2.0**99, width=32), min_size=1, max_size=9)


@given(VALUES)
def test_signs_alone_are_sent(values: list[float]) -> None:
    sent = protect("signsgd", {"w": torch.tensor([values])})["w"]
    assert sent.codes.dtype == np.int8
    assert sent.decode()[0, 0].tolist() == [(value > 0) - (value < 0) for value in values]
