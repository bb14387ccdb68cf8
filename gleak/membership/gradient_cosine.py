"""Cosine of a candidate's gradient with the update."""

from __future__ import annotations

from typing import ClassVar

from gleak.attacks.observation import Observation
from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.membership.base import Candidates, EachVictimSpec
from gleak.membership.gradient_rows import gradient_rows, update_vectors


@register("gradient_cosine")
class GradientCosine(EachVictimSpec):
    """Cosine of the angle between a candidate's gradient and the update.

    A member's gradient is a summand of the update. Over rounds the cosines are added.
    """

    source: ClassVar[str] = "Li et al. 2022; Grad-Cosine of FedMIA (Zhu et al. 2025)"

    def evidence_alike(self, observed: Observation, candidates: Candidates) -> torch.Tensor:
        return candidates.of_each(cosines(observed, candidates))


def cosines(observed: Observation, candidates: Candidates) -> torch.Tensor:
    """Compute the cosine of each pooled sample's gradient with each update; Shape (M, V).

    It is zero if one of the two is zero.
    """
    updates = update_vectors(observed)
    least = torch.finfo(updates.dtype).tiny
    lengths = updates.norm(dim=1).clamp_min(least)
    found = updates.new_empty(len(candidates.inputs), observed.victims)
    for part, rows in gradient_rows(observed, candidates.inputs, candidates.labels):
        found[part] = rows @ updates.T / lengths / rows.norm(dim=1, keepdim=True).clamp_min(least)
    return found
