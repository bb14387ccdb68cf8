"""Separating the mixtures of many victims, whatever the number of each one's sources."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gleak.unmixing.mixtures import Mixture


@dataclass(frozen=True)
class Unmixing:
    """Rows that unmix the gradients of V victims, and the books of the search for them.

    Args:
        rows: Shape (V, n, neurons).
        iterations: Shape (V).
        objective: Shape (V).
    """

    rows: Tensor
    iterations: Tensor
    objective: Tensor


@dataclass(frozen=True)
class Sources:
    """What was unmixed for V victims, up to a factor for each source.

    Args:
        values: u G for each row u of the unmixing, not finite beyond a victim's own number of
            sources; Shape (V, n, F).
        factors: u b, which are the sources' own factors where the unmixing is right (see
            `gleak.unmixing.scale`); Shape (V, n, 1).
        iterations, objective: Shape (V), zero of a victim without sources.
    """

    values: Tensor
    factors: Tensor
    iterations: Tensor
    objective: Tensor


def separate(
    mixture: Mixture,
    counts: Sequence[int],
    most: int,
    unmix: Callable[[Mixture, int], Unmixing],
) -> Sources:
    """Unmix every victim; those with equally many sources together, those without any not at all.

    Args:
        mixture: of V victims.
        counts: of each one's sources.
        most: n, of no victim more.
        unmix: from the mixtures of some victims and the number of their sources to an unmixing.
    """
    victims = len(mixture.weight)
    values = mixture.weight.new_full((victims, most, mixture.weight.shape[2]), torch.nan)
    factors, objective = values[..., :1].clone(), values.new_zeros(victims)
    iterations = torch.zeros(victims).long()
    for count in sorted(set(counts) - {0}):
        some = torch.tensor([number for number, own in enumerate(counts) if own == count])
        part = mixture.keep(some)
        found = unmix(part, count)
        values[some, :count], factors[some, :count] = _applied(found.rows, part)
        objective[some] = found.objective.to(objective)
        iterations[some] = found.iterations.cpu()
    return Sources(values, factors, iterations, objective)


def _applied(rows: Tensor, mixture: Mixture) -> tuple[Tensor, Tensor]:
    """What rows make of the gradients, in double precision; Shape (V, n, F) and (V, n, 1)."""
    sources = [own @ weight.double() for own, weight in zip(rows, mixture.weight, strict=True)]
    factors = rows @ mixture.bias.double()[..., None]
    return torch.stack(sources).to(mixture.weight), factors.to(mixture.weight)
