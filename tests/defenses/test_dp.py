from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from gleak.core.errors import SpecError
from gleak.core.registry import parse

SHAPES = {"weight": (4, 2, 3), "bias": (4,), "scale": ()}
SCALINGS = ["unit", "clip"]
LENGTHS = st.floats(-30, 20).map(lambda power: 10.0**power)


def stream(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def update(*lengths: float) -> dict[str, Tensor]:
    """One round of each length, all parameters together."""
    numbers = {name: stream(9) for name in SHAPES}
    drawn = {
        name: torch.randn(len(lengths), *shape, generator=numbers[name], dtype=torch.float64)
        for name, shape in SHAPES.items()
    }
    factors = torch.tensor(lengths, dtype=torch.float64) / torch.from_numpy(length(drawn))
    return {
        name: (value * factors.reshape(-1, *[1] * (value.ndim - 1))).float()
        for name, value in drawn.items()
    }


def protect(sent: dict[str, Tensor], fields: str, seed: int = 0) -> dict[str, np.ndarray]:
    encoded = parse("defense", f"dp+{fields}").protect(sent, stream(seed), {})
    return {name: value.decode()[0] for name, value in encoded.items()}


def joined(values: dict[str, Tensor] | dict[str, np.ndarray]) -> np.ndarray:
    """Shape (R, M), in double precision."""
    rows = [
        np.asarray(value, dtype=np.float64).reshape(len(value), -1) for value in values.values()
    ]
    return np.concatenate(rows, axis=1)


def length(values: dict[str, Tensor] | dict[str, np.ndarray]) -> np.ndarray:
    return np.linalg.norm(joined(values), axis=1)


@given(st.lists(LENGTHS, min_size=1, max_size=3), st.floats(0.1, 10))
def test_each_round_is_scaled_to_the_norm_as_one_vector(lengths: list[float], norm: float) -> None:
    sent = update(*lengths)
    scaled = joined(protect(sent, f"sigma=0+norm={norm}"))
    expected = norm * joined(sent) / length(sent)[:, None]
    np.testing.assert_allclose(scaled, expected, rtol=1e-5, atol=1e-6)


@given(st.lists(LENGTHS, min_size=1, max_size=3), st.floats(0.1, 10))
def test_clipping_shortens_what_is_longer(lengths: list[float], norm: float) -> None:
    sent = update(*lengths)
    clipped = joined(protect(sent, f"sigma=0+scaling=clip+norm={norm}"))
    for before, after in zip(joined(sent), clipped, strict=True):
        if np.linalg.norm(before) <= norm:
            np.testing.assert_array_equal(after, before)
        else:
            expected = norm * before / np.linalg.norm(before)
            np.testing.assert_allclose(after, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("scaling", SCALINGS)
def test_a_round_of_zeros_stays_and_leaves_the_others_alone(scaling: str) -> None:
    sent = update(3.0, 0.0)
    found = joined(protect(sent, f"sigma=0+scaling={scaling}"))
    np.testing.assert_allclose(found[0], joined(sent)[0] / 3, rtol=1e-5)
    np.testing.assert_array_equal(found[1], 0)


def test_the_smallest_numbers_are_scaled_too() -> None:
    """A subnormal update: its square and the factor both leave the range of single precision."""
    found = protect({"w": torch.tensor([[3e-42, 4e-42, 0]])}, "sigma=0")["w"]
    np.testing.assert_allclose(found, [[0.6, 0.8, 0]], rtol=1e-3)


@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("sigma", [0.01, 2.0])
def test_noise_is_normal_and_as_strong_as_stated(scaling: str, sigma: float) -> None:
    """Means of n values lie within 5 standard errors; the noise does not grow with the norm."""
    sent = {"a": torch.ones(2, 200, 300), "b": torch.ones(2, 400)}
    fields = f"norm=7+scaling={scaling}"
    noise = joined(protect(sent, f"{fields}+sigma={sigma}"))
    noise = (noise - joined(protect(sent, f"{fields}+sigma=0"))) / sigma
    assert abs(noise.mean()) < 5 / math.sqrt(noise.size) + 1e-5
    for part in (noise[0], noise[1], noise[:, -400:]):
        assert abs(part.var() - 1) < 5 * math.sqrt(2 / part.size)
    assert abs((noise**4).mean() / 3 - 1) < 0.1


def test_noise_differs_between_victims_rounds_and_parameters() -> None:
    silent = {"a": torch.zeros(2, 50), "b": torch.zeros(2, 50)}
    one, other = (protect(silent, "sigma=0.1", seed) for seed in (0, 1))
    rows = [*one["a"], *one["b"], *other["a"], *other["b"]]
    assert len({row.tobytes() for row in rows}) == len(rows)


def test_noise_does_not_depend_on_the_update() -> None:
    noise = []
    for sent in (update(1.0, 5.0), update(0.0, 0.0)):
        bare, noisy = (joined(protect(sent, f"sigma={sigma}")) for sigma in (0, 0.5))
        noise.append(noisy - bare)
    np.testing.assert_allclose(noise[0], noise[1], atol=1e-6)


@pytest.mark.parametrize("scaling", SCALINGS)
def test_noise_may_be_a_multiple_of_the_norm(scaling: str) -> None:
    fields = f"norm=4+scaling={scaling}"
    given_directly = protect(update(3.0, 9.0), f"{fields}+sigma=2")
    found = protect(update(3.0, 9.0), f"{fields}+sigma=none+noise_multiplier=0.5")
    assert all(np.array_equal(found[name], value) for name, value in given_directly.items())


@pytest.mark.parametrize("noise", ["sigma=2", "sigma=none+noise_multiplier=0.5"])
@pytest.mark.parametrize("factor", [-0.25, 8.0])
def test_numbers_for_the_gradient_become_those_of_what_is_sent(noise: str, factor: float) -> None:
    """A power of two, so that nothing is rounded."""
    spec = parse("defense", f"dp+{noise}+norm=4+scaling=clip+unit=gradient")
    sent, size = update(3.0, 9.0), abs(factor)
    multiplied = {name: size * value for name, value in sent.items()}
    found = spec.converted(factor).protect(multiplied, stream(), {})
    for name, encoded in spec.protect(sent, stream(), {}).items():
        assert np.array_equal(found[name].decode(), size * encoded.decode())


@pytest.mark.parametrize("fields", ["sigma=none", "noise_multiplier=1"])
def test_noise_is_given_once(fields: str) -> None:
    with pytest.raises(SpecError, match=r"sigma=DEVIATION, or sigma=none\+noise_multiplier"):
        parse("defense", f"dp+{fields}")


@pytest.mark.parametrize("fields", ["sigma=-1", "norm=0", "scaling=none"])
def test_what_is_no_mechanism_is_refused(fields: str) -> None:
    with pytest.raises(SpecError, match=fields.partition("=")[0]):
        parse("defense", f"dp+{fields}")
