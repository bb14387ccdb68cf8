"""The search of the cocktail party attack: Adam on unmixing matrices of many victims at once."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gleak.matching.optimizers.base import OptimizerSpec
from gleak.runtime.progress import Progress
from gleak.unmixing.objective import Objective

JUDGED_EVERY = 50


@dataclass(frozen=True)
class Found:
    """Where the search of each of V victims ended.

    Args:
        matrices: Shape (V, n, n), where the objective was least when it was looked at.
        objective: Shape (V), there.
        iterations: Shape (V).
    """

    matrices: Tensor
    objective: Tensor
    iterations: Tensor


def descend(
    objective: Objective,
    first: Tensor,
    optimizer: OptimizerSpec,
    iterations: int,
    tolerance: float | None,
) -> Found:
    """Minimise from the first matrices on; a victim stops when its objective rests.

    It rests when it has fallen by less than ``tolerance``, relative to its size, since it was last
    looked at, `JUDGED_EVERY` iterations before. Without a tolerance the budget is spent.

    Args:
        objective: of V victims.
        first: Shape (V, n, n).
        optimizer: how matrices move.
        iterations: budget of every victim.
        tolerance: see above.
    """
    points = first.flatten(1)
    state = optimizer.begin(points, iterations)
    best, least = points.clone(), first.new_full((len(first),), torch.inf)
    spent, resting = torch.zeros(len(first)).long(), torch.zeros(len(first)).bool()
    least_gain = -torch.inf if tolerance is None else tolerance
    with Progress(iterations, "unmixing") as progress:
        for number in range(iterations + 1):
            values, gradients = objective.evaluate(points.view_as(first))
            if number % JUDGED_EVERY == 0 or number == iterations:
                running = ~resting.to(values.device)
                rests = least - values < least_gain * values.abs()
                better = running & (values < least)
                best[better], least[better] = points[better], values[better]
                spent[running.cpu()] = number
                resting |= rests.cpu()
                progress.advance(number - progress.done, objective=values.mean().item())
            if resting.all() or number == iterations:
                break
            points = state.step(points, gradients.flatten(1))
    return Found(best.view_as(first), least, spent)
