"""What holds for every quantiser."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from gleak.artifacts.encodings import Quantized
from gleak.core.errors import SpecError
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
    sent = update(0, 1.0, 0.0)
    for name, encoded in protect(spec_of(spec, 8, scope), sent).items():
        assert not encoded.codes[0, 1].any()
        assert encoded.scales[0, 1] == 0
        assert np.isfinite(encoded.decode()).all()
        assert encoded.codes[0, 0].any() or name != "scale"


@pytest.mark.parametrize("spec", SPECS)
def test_codes_do_not_depend_on_the_scale(spec: str) -> None:
    """Powers of two are exact, so even draws fall the same way."""
    sent = update(1, 1.0)
    larger = {name: 1024 * value for name, value in sent.items()}
    one, other = protect(spec, sent), protect(spec, larger)
    for name in SHAPES:
        np.testing.assert_array_equal(one[name].codes, other[name].codes)
        np.testing.assert_array_equal(1024 * one[name].scales, other[name].scales)


@pytest.mark.parametrize("spec", SPECS)
def test_one_vector_has_one_scale(spec: str) -> None:
    encoded = protect(f"{spec_of(spec, 3, 'global')}", update(2, 1.0, 5.0)).values()
    assert len({parts.scales.tobytes() for parts in encoded}) == 1


@pytest.mark.parametrize("name", ["quantize", "qsgd"])
@pytest.mark.parametrize("fields", ["bits=1", "bits=9", "scope=layer"])
def test_what_is_no_such_quantiser_is_refused(name: str, fields: str) -> None:
    with pytest.raises(SpecError, match=fields.partition("=")[0]):
        parse("defense", f"{name}+{fields}")
