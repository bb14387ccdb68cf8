"""Projection of the update on a candidate's gradient, whitened by what hides it."""

from __future__ import annotations

from dataclasses import dataclass

from gleak.attacks.observation import Observation
from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.membership.base import Candidates, EachVictimSpec
from gleak.membership.gradient_rows import all_rows, gradient_rows, update_vectors

RELATIVE = 1e-6
"""Standard deviation, relative to the largest, below which a direction is rounding."""
TINY = 1e-300


@dataclass(frozen=True)
class Background:
    """Distribution of the other members' mean gradient: of rank L, with equal noise besides.

    Args:
        mean: of the gradients of references, Shape (P).
        directions: orthonormal eigenvectors of their covariance, Shape (L, P).
        variances: eigenvalues, divided by the number of samples of an update, Shape (L).
    """

    mean: torch.Tensor
    directions: torch.Tensor
    variances: torch.Tensor

    @classmethod
    def of(cls, rows: torch.Tensor, batch_size: int) -> Background:
        """Return that of the mean of ``batch_size`` gradients, from references; (L, P)."""
        if len(rows) < 2:
            return cls(rows.new_zeros(rows.shape[1]), rows[:0], rows.new_zeros(0).double())
        mean = rows.mean(0)
        _, deviations, directions = torch.linalg.svd(rows - mean, full_matrices=False)
        kept = deviations > RELATIVE * deviations.max()
        variances = deviations[kept].double().square() / ((len(rows) - 1) * batch_size)
        return cls(mean, directions[kept], variances)

    def split(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return coordinates of centred rows in the directions, (n, L), and the rest, (n, P)."""
        centred = rows - self.mean
        inside = centred @ self.directions.T
        return inside.double(), centred - inside @ self.directions

    def noise(self, updates: torch.Tensor) -> torch.Tensor:
        """Estimate the variance of a value outside of the directions, from updates; (V, P) to (V).

        It holds the noise of a defence and what references do not span of the other members.
        """
        outside = self.split(updates)[1].double().square().sum(1)
        values = (updates != 0).sum(1) - len(self.variances)
        rounding = torch.finfo(updates.dtype).eps ** 2 * updates.double().square().mean(1)
        return torch.maximum(outside / values.clamp_min(1), rounding).clamp_min(TINY)


@register("whitened_projection")
class WhitenedProjection(EachVictimSpec):
    """Projection on a candidate's gradient, whitened by the other members and the noise.

    The update is g / N + b, where g is a member's centred gradient and b the mean of the other
    members' with noise. The covariance S of b is that of the references' gradients over N, plus
    that of equal noise of a size that is estimated from the update, outside of the references'
    span. The evidence is g' S^-1 u / sqrt(g' S^-1 g): for a normal b and a known g the most
    powerful statistic (Neyman and Pearson 1933), with a variance of one for all candidates that are
    no members. Of Gaussian noise alone it finds members at the rate Phi(Phi^-1(FPR) + 1 / z), where
    z is the noise of a value over the length of g / N. Over rounds the statistics are added.
    """

    source = "ours; matched filter"

    def evidence_alike(self, observed: Observation, candidates: Candidates) -> torch.Tensor:
        references = all_rows(observed, candidates.reference_inputs, candidates.reference_labels)
        background = Background.of(references, observed.batch_size)
        updates = update_vectors(observed)
        noise, (within, outside) = background.noise(updates), background.split(updates)
        weights = 1 / (noise[:, None] + background.variances)
        found = updates.new_empty(len(candidates.inputs), observed.victims, dtype=torch.float64)
        for part, rows in gradient_rows(observed, candidates.inputs, candidates.labels):
            inside, beside = background.split(rows)
            products = inside @ (within * weights).T + (beside @ outside.T).double() / noise
            lengths = beside.double().square().sum(1, keepdim=True)
            squares = inside.square() @ weights.T + lengths / noise
            found[part] = products / squares.clamp_min(TINY).sqrt()
        return candidates.of_each(found)
