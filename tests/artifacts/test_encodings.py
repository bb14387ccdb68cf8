from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from gleak.artifacts.encodings import (
    Dense,
    Encoded,
    Factored,
    Quantized,
    Signs,
    Sparse,
    check_encoded,
)
from gleak.core.errors import ArtifactError


@st.composite
def sparse(draw: st.DrawFn, shape: tuple[int, ...] = (3, 4)) -> tuple[Sparse, np.ndarray]:
    """Entries sent by one victim in one round, and the parameter they make, slot by slot."""
    size = int(np.prod(shape))
    positions = draw(st.lists(st.integers(0, size - 1), unique=True, max_size=size))
    unused = draw(st.integers(0, 2))
    values = [draw(st.floats(-9, 9)) for _ in positions] + [0.0] * unused
    expected = np.zeros(size)
    for position, value in zip(positions, values, strict=False):
        expected[position] = value
    slots = np.array([*positions, *[-1] * unused], np.int64)
    encoded = Sparse(slots[None, None], np.array(values)[None, None], np.array(shape))
    return encoded, expected.reshape(1, 1, *shape)


@given(sparse())
def test_sparse_decodes_to_sent_values_and_zeros(case: tuple[Sparse, np.ndarray]) -> None:
    encoded, expected = case
    check_encoded("file.h5", "/update/w", encoded)
    np.testing.assert_array_equal(encoded.decode(), expected)


@given(st.lists(sparse(), min_size=1, max_size=4))
def test_stacked_victims_decode_as_they_do_alone(cases: list[tuple[Sparse, np.ndarray]]) -> None:
    stacked = Sparse.stack([encoded for encoded, _ in cases])
    check_encoded("file.h5", "/update/w", stacked)
    np.testing.assert_array_equal(stacked.decode(), np.concatenate([e for _, e in cases]))


def factored(victims: int, shape: tuple[int, ...], rank: int = 2, seed: int = 0) -> Factored:
    random = np.random.default_rng(seed)
    return Factored(
        random.normal(size=(victims, 3, shape[0], rank)),
        random.normal(size=(victims, 3, rank, int(np.prod(shape[1:])))),
        np.array(shape),
    )


@pytest.mark.parametrize("rank", [0, 1, 2])
@pytest.mark.parametrize("shape", [(4,), (4, 6), (4, 2, 3), (2, 3, 5, 1)])
def test_factored_decodes_to_sums_of_outer_products(shape: tuple[int, ...], rank: int) -> None:
    encoded = factored(2, shape, rank)
    check_encoded("file.h5", "/update/w", encoded)
    assert encoded.leading == (2, 3)
    expected = np.zeros((2, 3, shape[0], int(np.prod(shape[1:]))))
    for number in range(rank):
        column, row = encoded.left[..., number], encoded.right[..., number, :]
        expected += column[..., :, None] * row[..., None, :]
    np.testing.assert_allclose(encoded.decode(), expected.reshape(2, 3, *shape), atol=1e-12)
    assert encoded.sent() is None


@pytest.mark.parametrize(
    ("left", "right", "shape", "fault"),
    [
        ((1, 1, 4, 2), (1, 1, 2, 6), (4, 5), r"/shape \(4, 5\) does not have 4 x 6 values"),
        ((1, 1, 4, 2), (1, 1, 2, 6), (4,), r"/shape \(4,\) does not have 4 x 6 values"),
        ((1, 1, 4, 2), (1, 1, 3, 6), (4, 6), "/right has 3 along 'rank'"),
        ((1, 1, 4, 2), (2, 1, 2, 6), (4, 6), "/right has 2 along 'victim'"),
        ((1, 1, 4), (1, 1, 2, 6), (4, 6), r"/left has shape \(1, 1, 4\), expected"),
    ],
)
def test_factors_that_do_not_fit_are_refused(
    left: tuple[int, ...], right: tuple[int, ...], shape: tuple[int, ...], fault: str
) -> None:
    encoded = Factored(np.zeros(left), np.zeros(right), np.array(shape))
    with pytest.raises(ArtifactError, match=f"^file.h5: /update/w{fault}"):
        check_encoded("file.h5", "/update/w", encoded)


@pytest.mark.parametrize(
    ("indices", "values", "fault"),
    [
        ([[[12]]], [[[1.0]]], "/update/w/indices are out of range for 12 values"),
        ([[[-2]]], [[[1.0]]], "/update/w/indices are out of range for 12 values"),
        ([[[0.5]]], [[[1.0]]], "/update/w/indices has type float64, expected int"),
        ([[[0]]], [[[np.inf]]], "/update/w/values contains 1 values that are NaN or infinite"),
        ([[[0, 1]]], [[[1.0]]], "/update/w/values has 1 along 'entry'"),
    ],
)
def test_faults_are_reported_with_their_key(indices: list, values: list, fault: str) -> None:
    encoded = Sparse(np.array(indices), np.array(values), np.array([3, 4]))
    with pytest.raises(ArtifactError, match=f"^file.h5: {fault}"):
        check_encoded("file.h5", "/update/w", encoded)


CODES = npst.arrays(np.int8, st.tuples(*[st.integers(1, 3)] * 4), elements=st.integers(-127, 127))


@given(CODES)
def test_quantized_decodes_to_codes_times_the_scale_of_their_round(codes: np.ndarray) -> None:
    scales = np.arange(codes.shape[0] * codes.shape[1], dtype=np.float32).reshape(codes.shape[:2])
    encoded = Quantized(codes, scales)
    check_encoded("file.h5", "/update/w", encoded)
    decoded = encoded.decode()
    assert decoded.dtype == np.float32
    for place in np.ndindex(codes.shape):
        assert decoded[place] == scales[place[:2]] * np.float32(codes[place])


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("kind", ["dense", "factored", "quantized"])
def test_stacked_updates_decode_as_they_do_alone(kind: str, axis: int) -> None:
    random, parts = np.random.default_rng(0), []
    for scale in (0.5, 2, 3):
        codes = random.integers(-127, 128, (2, 3, 5), dtype="i1")
        made: dict[str, Encoded] = {
            "dense": Dense(random.normal(size=(2, 3, 5))),
            "factored": factored(2, (4, 2, 3), seed=int(scale)),
            "quantized": Quantized(codes, np.full((2, 3), scale, np.float32)),
        }
        parts.append(made[kind])
    stacked = type(parts[0]).stack(parts, axis)
    check_encoded("file.h5", "/update/w", stacked)
    expected = np.concatenate([part.decode() for part in parts], axis)
    np.testing.assert_array_equal(stacked.decode(), expected)


def test_signs_decode_to_numbers() -> None:
    signs = Signs(np.array([[[-1, 0, 1]]], np.int8))
    check_encoded("file.h5", "/update/w", signs)
    assert signs.decode().dtype == np.float32
    assert signs.decode().tolist() == [[[-1, 0, 1]]]


@pytest.mark.parametrize(
    ("encoded", "fault"),
    [
        (Signs(np.full((1, 1, 2), 2)), "/update/w contains codes other than -1, 0 and 1"),
        (Signs(np.ones((1, 1, 2))), "/update/w has type float64, expected int"),
        (Quantized(np.ones((1, 1, 2)), np.ones((1, 1))), "/update/w/codes has type float64"),
        (Quantized(np.ones((1, 2, 2), int), np.ones((1, 1))), "/update/w/scales has 1 along"),
    ],
)
def test_codes_that_cannot_be_are_refused(encoded: Encoded, fault: str) -> None:
    with pytest.raises(ArtifactError, match=f"^file.h5: {fault}"):
        check_encoded("file.h5", "/update/w", encoded)


def one_victim(*values: float, kind: str = "f4") -> np.ndarray:
    return np.array([[values]], kind)


@pytest.mark.parametrize(
    ("encoded", "bits"),
    [
        (Dense(np.zeros((2, 3, 5), np.float32)), 2 * 3 * 5 * 32),
        (Factored(np.zeros((1, 1, 4, 2), "f4"), np.zeros((1, 1, 2, 6), "f4"), [4, 6]), 20 * 32),
        # Seven bits tell 100 positions apart, so from 15 entries on a mask is smaller.
        (Sparse(one_victim(0, 1, -1, kind="i8"), one_victim(1, 1, 0), [100]), 2 * (32 + 7)),
        (Sparse(one_victim(*range(20), kind="i8"), one_victim(*[1] * 20), [100]), 20 * 32 + 100),
        *[
            (Quantized(one_victim(*[0] * 49, -highest, kind="i1"), np.ones((1, 1), "f4")), bits)
            for highest, bits in [(0, 32), (1, 132), (3, 182), (7, 232), (127, 432)]
        ],
        (Signs(one_victim(1, 1, -1, kind="i1")), 3),
        (Signs(one_victim(1, 0, -1, kind="i1")), 6),
    ],
)
def test_bits_are_those_of_the_numbers_sent(encoded: Encoded, bits: int) -> None:
    assert encoded.bits == bits
