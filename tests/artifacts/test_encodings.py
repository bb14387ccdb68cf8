from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gleak.artifacts.encodings import Dense, Sparse, check_encoded
from gleak.errors import ArtifactError


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
def test_sparse_decodes_to_what_was_sent_and_zeros(case: tuple[Sparse, np.ndarray]) -> None:
    encoded, expected = case
    check_encoded("file.h5", "/update/w", encoded)
    np.testing.assert_array_equal(encoded.decode(), expected)


@given(st.lists(sparse(), min_size=1, max_size=4))
def test_stacked_victims_decode_as_they_do_alone(cases: list[tuple[Sparse, np.ndarray]]) -> None:
    stacked = Sparse.stack([encoded for encoded, _ in cases])
    check_encoded("file.h5", "/update/w", stacked)
    np.testing.assert_array_equal(stacked.decode(), np.concatenate([e for _, e in cases]))


def test_dense_stacks_along_victims() -> None:
    parts = [Dense(np.full((1, 2, 3), float(victim))) for victim in range(3)]
    stacked = Dense.stack(parts)
    assert stacked.decode().shape == (3, 2, 3)
    np.testing.assert_array_equal(stacked.decode()[:, 0, 0], [0, 1, 2])


@pytest.mark.parametrize(
    ("indices", "values", "fault"),
    [
        ([[[12]]], [[[1.0]]], "/update/w/indices point outside its 12 values"),
        ([[[-2]]], [[[1.0]]], "/update/w/indices point outside its 12 values"),
        ([[[0.5]]], [[[1.0]]], "/update/w/indices holds float64, expected int"),
        ([[[0]]], [[[np.inf]]], "/update/w/values holds 1 values that are NaN or infinite"),
        ([[[0, 1]]], [[[1.0]]], "/update/w/values has 1 along 'entry'"),
    ],
)
def test_faults_are_told_with_their_key(indices: list, values: list, fault: str) -> None:
    encoded = Sparse(np.array(indices), np.array(values), np.array([3, 4]))
    with pytest.raises(ArtifactError, match=f"^file.h5: {fault}"):
        check_encoded("file.h5", "/update/w", encoded)
