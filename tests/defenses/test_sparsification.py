from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from torch import Tensor

from gleak.artifacts.encodings import Dense, Encoded, Factored
from gleak.core.registry import parse

SHAPES = {"weight": (4, 5), "bias": (3,), "scale": ()}
SCOPES = st.sampled_from(["tensor", "global"])
PERCENT = st.integers(0, 99)


@st.composite
def updates(draw: st.DrawFn) -> dict[str, Tensor]:
    """Whole numbers, whose sums are exact, so that many are of equal magnitude."""
    rounds = draw(st.integers(1, 4))
    return {
        name: torch.from_numpy(
            draw(npst.arrays(np.float32, (rounds, *shape), elements=st.integers(-9, 9)))
        )
        for name, shape in SHAPES.items()
    }


def protect(
    percent: int, scope: str, update: dict[str, Tensor], memory: dict[str, Tensor]
) -> dict[str, Encoded]:
    spec = parse("defense", f"threshold+theta={percent / 100}+scope={scope}")
    return spec.protect(update, torch.Generator(), memory)


@given(PERCENT, SCOPES, st.lists(updates(), min_size=1, max_size=3))
def test_nothing_is_lost(percent: int, scope: str, calls: list[dict[str, Tensor]]) -> None:
    memory: dict[str, Tensor] = {}
    sent = {name: np.zeros(shape) for name, shape in SHAPES.items()}
    for update in calls:
        for name, encoded in protect(percent, scope, update, memory).items():
            sent[name] += encoded.decode()[0].sum(0)
    for name, total in sent.items():
        assert memory[name].shape == total.shape
        owed = sum(update[name].numpy().sum(0) for update in calls)
        np.testing.assert_array_equal(total + memory[name].numpy(), owed)


@given(PERCENT, SCOPES, updates())
def test_a_first_round_is_that_of_topk(percent: int, scope: str, update: dict[str, Tensor]) -> None:
    first = {name: value[:1] for name, value in update.items()}
    spec = parse("defense", f"topk+keep={(100 - percent) / 100}+scope={scope}")
    expected = spec.protect(first, torch.Generator(), {})
    for name, encoded in protect(percent, scope, first, {}).items():
        np.testing.assert_array_equal(encoded.indices, expected[name].indices)
        np.testing.assert_array_equal(encoded.values, expected[name].values)


def test_small_values_are_sent_once_they_have_grown() -> None:
    """2 of 3 values wait; the slow one comes through when its sum has overtaken the others'."""
    memory: dict[str, Tensor] = {}
    update = {"w": torch.tensor([[5.0, 3.0, 2.0]]).repeat(3, 1)}
    sent = protect(67, "tensor", update, memory)["w"].decode()[0]
    np.testing.assert_array_equal(sent, [[5, 0, 0], [0, 6, 0], [10, 0, 0]])
    np.testing.assert_array_equal(memory["w"], [0, 3, 6])


def masked(update: dict[str, Tensor], keep: float = 0.25, seed: int = 0) -> dict[str, Encoded]:
    spec = parse("defense", f"random_mask+keep={keep}")
    return spec.protect(update, torch.Generator().manual_seed(seed), {})


@given(st.integers(1, 100), st.integers(1, 200), st.integers(1, 3))
def test_the_share_of_each_parameter_and_round_is_exact(
    percent: int, size: int, rounds: int
) -> None:
    values = torch.arange(1, rounds * size + 1.0).reshape(rounds, size)
    sent = masked({"w": values}, percent / 100)["w"]
    assert (sent.sent().sum(-1) == -(-percent * size // 100)).all()
    expected = np.where(sent.sent()[0], values.numpy(), 0)
    np.testing.assert_array_equal(sent.decode()[0], expected)


def test_positions_differ_between_clients_rounds_and_parameters() -> None:
    update = {"a": torch.ones(2, 60), "b": torch.ones(2, 60)}
    one, other = (masked(update, seed=seed) for seed in (0, 1))
    rows = [*one["a"].sent()[0], *one["b"].sent()[0], *other["a"].sent()[0]]
    assert len({row.tobytes() for row in rows}) == len(rows)


def test_every_position_is_as_likely_as_any_other() -> None:
    """4,000 masks of a quarter: a count's standard deviation is 27 around 1,000."""
    counts = masked({"w": torch.ones(4000, 3, 4)})["w"].sent()[0].sum(0)
    assert counts.shape == (3, 4)
    assert np.abs(counts - 1000).max() < 5 * (4000 * 0.25 * 0.75) ** 0.5


BASES = ["random", "best"]
MATRICES = [(6, 5), (5, 30), (8, 2, 3, 3), (7, 1, 9)]
CASES = st.tuples(
    st.sampled_from(MATRICES), st.integers(1, 4), st.integers(1, 3), st.integers(0, 99)
)


def normal(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype("f4")


def low_rank(values: np.ndarray, spec: str, seed: int = 0) -> Factored | Dense:
    defense = parse("defense", f"low_rank+{spec}")
    update = {"w": torch.from_numpy(values)}
    return defense.protect(update, torch.Generator().manual_seed(seed), {})["w"]


def matrices(values: np.ndarray) -> np.ndarray:
    """Shape (R, out, rest)."""
    return values.reshape(*values.shape[:2], -1)


@pytest.mark.parametrize("basis", BASES)
@given(case=CASES)
def test_the_product_is_of_the_rank_and_projects_the_update(
    basis: str, case: tuple[tuple[int, ...], int, int, int]
) -> None:
    """The residual is orthogonal to an orthonormal basis, and larger ranks lose no more."""
    shape, rank, rounds, seed = case
    values = normal((rounds, *shape), seed)
    sent = low_rank(values, f"rank={rank}+basis={basis}", seed)
    assert sent.left.shape[-1] == rank
    left, found = sent.left[0], matrices(sent.decode()[0])
    identity = np.broadcast_to(np.eye(rank), (rounds, rank, rank))
    np.testing.assert_allclose(left.mT @ left, identity, atol=1e-5)
    np.testing.assert_allclose(left.mT @ (matrices(values) - found), 0, atol=1e-4)
    assert (np.linalg.matrix_rank(found, tol=1e-4) <= rank).all()


@given(CASES)
def test_the_best_basis_gives_the_nearest_matrix(
    case: tuple[tuple[int, ...], int, int, int],
) -> None:
    """Oracle: what a truncated singular value decomposition leaves (Eckart and Young)."""
    shape, rank, rounds, seed = case
    values = normal((rounds, *shape), seed)
    found = matrices(low_rank(values, f"rank={rank}+basis=best").decode()[0])
    lost = ((matrices(values) - found) ** 2).sum((1, 2))
    singular = np.linalg.svd(matrices(values.astype("f8")), compute_uv=False)
    np.testing.assert_allclose(lost, (singular[:, rank:] ** 2).sum(1), rtol=1e-3, atol=1e-6)


def test_random_bases_differ_between_clients_and_rounds_and_favour_no_direction() -> None:
    """The mean projection on k of m uniformly random directions is k/m times the identity."""
    values = normal((2, 9, 20))
    lefts = [left for seed in (0, 1) for left in low_rank(values, "rank=3", seed).left[0]]
    assert len({left.tobytes() for left in lefts}) == 4
    left = low_rank(np.zeros((4000, 5, 6), "f4"), "rank=2").left[0]
    np.testing.assert_allclose((left @ left.mT).mean(0), 2 / 5 * np.eye(5), atol=0.03)


@pytest.mark.parametrize("basis", BASES)
@pytest.mark.parametrize("shape", [(), (20,), (3, 50), (50, 3), (20, 1, 2, 2), (4, 4)])
def test_what_would_not_shrink_is_sent_as_it_is(basis: str, shape: tuple[int, ...]) -> None:
    values = normal((2, *shape))
    sent = low_rank(values, f"rank=4+basis={basis}")
    assert isinstance(sent, Dense)
    np.testing.assert_array_equal(sent.values[0], values)
