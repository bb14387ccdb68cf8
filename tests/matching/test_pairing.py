from __future__ import annotations

import pytest
import torch
from scipy.optimize import linear_sum_assignment

from gleak.matching.pairing import distances, pair_greedily, share_a_label


def test_distances_are_mean_squared_errors() -> None:
    first, second = torch.rand(3, 2, 4, 4), torch.rand(5, 2, 4, 4)
    expected = (first[:, None] - second[None]).square().mean((2, 3, 4))
    torch.testing.assert_close(distances(first, second, pooled=False), expected)


def test_pooling_takes_noise_away() -> None:
    torch.manual_seed(0)
    images = torch.rand(1, 1, 4, 4).repeat_interleave(2, 2).repeat_interleave(2, 3)
    noisy = images + 0.1 * torch.randn(200, 1, 8, 8)
    plain, pooled = (distances(images, noisy, pooled=pooled).mean() for pooled in (False, True))
    assert float(pooled / plain) == pytest.approx(1 / 4, rel=0.05)


def test_updates_share_a_label() -> None:
    first, second = torch.tensor([[0, 1], [2, 2]]), torch.tensor([[1, 3], [0, 2], [4, 5]])
    assert share_a_label(first, second).tolist() == [[True, True, False], [False, True, False]]


def test_the_cheapest_pairs_come_first() -> None:
    costs = torch.tensor([[1.0, 2.0], [0.5, 9.0]])
    assert pair_greedily(costs, torch.ones(2, 2).bool()).tolist() == [1, 0]


def test_pairs_that_are_not_allowed_come_last() -> None:
    costs = torch.tensor([[0.1, 2.0, 3.0], [1.0, 0.2, 5.0], [0.3, 0.4, 9.0]])
    allowed = torch.tensor([[False, True, False], [False, False, True], [False, False, False]])
    assert pair_greedily(costs, allowed).tolist() == [1, 2, 0]


@pytest.mark.parametrize("seed", range(5))
def test_each_is_taken_once_and_clear_cases_as_the_best_assignment_has_them(seed: int) -> None:
    random = torch.Generator().manual_seed(seed)
    order = torch.randperm(9, generator=random)
    costs = 1 + torch.rand(9, 9, generator=random)
    costs[torch.arange(9), order] = torch.rand(9, generator=random)
    found = pair_greedily(costs, torch.ones(9, 9).bool())
    assert found.tolist() == order.tolist() == linear_sum_assignment(costs)[1].tolist()
