from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from gleak.artifacts.encodings import Encoded
from gleak.core.registry import parse


def protect(update: dict[str, Tensor], keep: float = 0.25, seed: int = 0) -> dict[str, Encoded]:
    spec = parse("defense", f"random_mask+keep={keep}")
    return spec.protect(update, torch.Generator().manual_seed(seed), {})


@given(st.integers(1, 100), st.integers(1, 200), st.integers(1, 3))
def test_the_share_of_each_parameter_and_round_is_exact(
    percent: int, size: int, rounds: int
) -> None:
    values = torch.arange(1, rounds * size + 1.0).reshape(rounds, size)
    sent = protect({"w": values}, percent / 100)["w"]
    assert (sent.sent().sum(-1) == -(-percent * size // 100)).all()
    expected = np.where(sent.sent()[0], values.numpy(), 0)
    np.testing.assert_array_equal(sent.decode()[0], expected)


def test_positions_differ_between_clients_rounds_and_parameters() -> None:
    update = {"a": torch.ones(2, 60), "b": torch.ones(2, 60)}
    one, other = (protect(update, seed=seed) for seed in (0, 1))
    rows = [*one["a"].sent()[0], *one["b"].sent()[0], *other["a"].sent()[0]]
    assert len({row.tobytes() for row in rows}) == len(rows)


def test_every_position_is_as_likely_as_any_other() -> None:
    """4,000 masks of a quarter: a count's standard deviation is 27 around 1,000."""
    counts = protect({"w": torch.ones(4000, 3, 4)})["w"].sent()[0].sum(0)
    assert counts.shape == (3, 4)
    assert np.abs(counts - 1000).max() < 5 * (4000 * 0.25 * 0.75) ** 0.5
