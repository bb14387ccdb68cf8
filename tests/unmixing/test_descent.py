from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from gleak.matching.optimizers.adam import Adam
from gleak.runtime.journal import Journal, Part
from gleak.unmixing.descent import JUDGED_EVERY, Found, descend
from gleak.unmixing.objective import Objective


def part() -> Part:
    return Journal().part()


def bowl(rows: Tensor) -> Tensor:
    """Least where every row points along the diagonal, steep as a root."""
    return (1.0 + 1e-4 - rows.mean(2) * rows.shape[2] ** 0.5).sqrt().sum(1)


@dataclass(frozen=True)
class Scripted:
    """Values by the number of the evaluation; the gradient is always one."""

    values: list[Tensor]

    def evaluate(self, matrices: Tensor) -> tuple[Tensor, Tensor]:
        return self.values.pop(0).to(matrices), torch.ones_like(matrices)


def starts(victims: int, count: int = 3) -> Tensor:
    stream = torch.Generator().manual_seed(0)
    return torch.rand(victims, count, count, generator=stream, dtype=torch.double) + torch.eye(
        count
    )


def zeros(victims: int) -> Tensor:
    return torch.zeros(victims, 2, 2, dtype=torch.double)


@pytest.mark.parametrize("iterations", [1, 75, 120])
def test_the_search_is_that_of_torchs_adam(iterations: int) -> None:
    objective, first = Objective([(1.0, bowl)]), starts(1)
    matrix = first.clone().requires_grad_()
    theirs = torch.optim.Adam([matrix], lr=0.02)
    seen: dict[int, tuple[float, Tensor]] = {}
    for number in range(iterations + 1):
        theirs.zero_grad()
        value = bowl(torch.nn.functional.normalize(matrix, dim=2)).sum()
        value.backward()
        seen[number] = (value.item(), matrix.detach().clone())
        theirs.step()
    looked_at = [0, *range(JUDGED_EVERY, iterations, JUDGED_EVERY), iterations]
    least, best = min((seen[number] for number in looked_at), key=lambda pair: pair[0])
    found = descend(objective, first, Adam(lr=0.02), iterations, None, part())
    torch.testing.assert_close(found.matrices, best, atol=1e-9, rtol=1e-7)
    assert found.objective.item() == pytest.approx(least)
    assert found.iterations.tolist() == [iterations]
    assert least < seen[0][0]


def test_the_best_matrix_that_was_looked_at_is_kept() -> None:
    values = [torch.tensor([5.0])] * (2 * JUDGED_EVERY + 1)
    values[JUDGED_EVERY] = torch.tensor([3.0])
    values[JUDGED_EVERY - 1] = torch.tensor([1.0])  # nobody looks
    found = descend(Scripted(values), zeros(1), Adam(lr=0.1), 2 * JUDGED_EVERY, None, part())
    assert found.objective.tolist() == [3.0]
    torch.testing.assert_close(found.matrices, zeros(1) - 0.1 * JUDGED_EVERY)


def test_what_never_falls_ends_where_it_began() -> None:
    values = [torch.tensor([float(number)]) for number in range(61)]
    first = starts(1)
    found = descend(Scripted(values), first, Adam(lr=0.1), 60, None, part())
    assert torch.equal(found.matrices, first)
    assert found.iterations.tolist() == [60]


def test_values_that_are_not_finite_are_never_kept() -> None:
    values = [torch.tensor([4.0, torch.nan])] + [torch.tensor([torch.nan, 2.0])] * 60
    found = descend(Scripted(values), starts(2), Adam(lr=0.1), 60, 1e-3, part())
    assert found.objective.tolist() == [4.0, 2.0]


def rests_at(tolerance: float | None, *values: float) -> Found:
    """The search of two victims, one of which falls by half at every look, the other as given."""
    looks = [torch.tensor([2.0**-number, value]) for number, value in enumerate(values)]
    script = [look for look in looks[:-1] for _ in range(JUDGED_EVERY)] + looks[-1:]
    budget = (len(values) - 1) * JUDGED_EVERY
    return descend(Scripted(script), zeros(2), Adam(lr=0.1), budget, tolerance, part())


def test_a_victim_that_rests_stops_alone() -> None:
    found = rests_at(0.01, 10.0, 9.0, 8.95, 1.0, 0.5)
    assert found.iterations.tolist() == [4 * JUDGED_EVERY, 2 * JUDGED_EVERY]
    assert found.objective.tolist() == pytest.approx([2.0**-4, 8.95])
    steps = torch.tensor([4, 2])[:, None, None] * JUDGED_EVERY
    torch.testing.assert_close(found.matrices, zeros(2) - 0.1 * steps)


def test_without_a_tolerance_the_budget_is_spent() -> None:
    found = rests_at(None, 10.0, 10.0, 10.0, 10.0)
    assert found.iterations.tolist() == [3 * JUDGED_EVERY] * 2


def test_the_search_ends_when_all_rest() -> None:
    flat = Objective([(1.0, lambda rows: 3 + 0 * rows.sum((1, 2)))])
    found = descend(flat, starts(2), Adam(lr=0.1), 10 * JUDGED_EVERY, 1e-3, part())
    assert found.iterations.tolist() == [JUDGED_EVERY] * 2


@pytest.mark.parametrize("tolerance", [None, 0.05])
def test_a_victim_alone_ends_as_among_others(tolerance: float | None) -> None:
    objective, first = Objective([(1.0, bowl)]), starts(3)
    first[1] = 1.0
    together = descend(objective, first, Adam(lr=0.01), 400, tolerance, part())
    for victim in range(3):
        alone = descend(objective, first[[victim]], Adam(lr=0.01), 400, tolerance, part())
        torch.testing.assert_close(alone.matrices[0], together.matrices[victim])
        assert alone.iterations[0] == together.iterations[victim]
    assert (tolerance is None) == (len(set(together.iterations.tolist())) == 1)
