"""How samples are divided among clients."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gleak.training.partition import divide

CLASSES = 10
LABELS = np.random.default_rng(0).permutation(np.arange(2000) % CLASSES)


def stream(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def distance(shares: list[np.ndarray]) -> float:
    """Mean total variation between the classes of a client and those of all; 0 for equal ones."""
    everyone = np.bincount(LABELS) / len(LABELS)
    own = [np.bincount(LABELS[share], minlength=CLASSES) / len(share) for share in shares]
    return float(np.mean([np.abs(classes - everyone).sum() / 2 for classes in own]))


@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=60),
    st.integers(1, 60),
    st.none() | st.floats(1e-3, 1e3),
    st.integers(0, 2**32),
)
def test_every_sample_is_held_once_and_every_client_holds_one(
    labels: list[int], clients: int, alpha: float | None, seed: int
) -> None:
    clients = min(clients, len(labels))
    shares = divide(np.array(labels), clients, alpha, stream(seed))
    assert len(shares) == clients
    assert min(map(len, shares)) >= 1
    assert sorted(np.concatenate(shares).tolist()) == list(range(len(labels)))


@pytest.mark.parametrize("clients", [7, 100])
def test_without_alpha_shares_are_equal_and_random(clients: int) -> None:
    shares = divide(LABELS, clients, None, stream())
    sizes = {len(share) for share in shares}
    assert max(sizes) - min(sizes) <= 1
    assert not np.array_equal(np.concatenate(shares), np.arange(len(LABELS)))


def test_classes_are_the_more_uneven_the_smaller_alpha_is() -> None:
    distances = [distance(divide(LABELS, 20, alpha, stream())) for alpha in (0.01, 1, 100)]
    assert distances[0] > 0.7
    assert distances == sorted(distances, reverse=True)
    assert distances[-1] < 2 * distance(divide(LABELS, 20, None, stream()))
