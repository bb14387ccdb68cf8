"""Projection of the update on a candidate's gradient, whitened by what hides it."""

from __future__ import annotations

from dataclasses import dataclass

from gleak.attacks.observation import Observation
from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.membership.base import Candidates, EachVictimSpec
from gleak.membership.gradient_rows import all_rows, gradient_rows, update_vectors

RELATIVE, TINY = 1e-7, 1e-300
"""Rounding error of squared lengths in single precision, and the least number that divides."""


@dataclass(frozen=True)
class Background:
    """Distribution of the other members' mean gradient: of rank L, with equal noise besides.

    Args:
        mean: of the gradients of references, Shape (P).
        axes: directions of their covariance times the square roots of its eigenvalues, divided by
            the number of samples of an update; Shape (L, P).
        variances: eigenvalues of the covariance, Shape (L).
    """

    mean: torch.Tensor
    axes: torch.Tensor
    variances: torch.Tensor

    @classmethod
    def of(cls, rows: torch.Tensor, batch_size: int) -> Background:
        """Return that of the mean of ``batch_size`` gradients, from references; (L, P)."""
        if len(rows) < 2:
            return cls(rows.new_zeros(rows.shape[1]), rows[:0], rows.new_zeros(0).double())
        mean = rows.mean(0)
        centred = (rows - mean) / ((len(rows) - 1) * batch_size) ** 0.5
        variances, turn = torch.linalg.eigh((centred @ centred.T).double())
        kept = variances > RELATIVE * variances.max().clamp_min(TINY)
        return cls(mean, turn[:, kept].T.to(rows) @ centred, variances[kept])

    def residual(self, updates: torch.Tensor) -> torch.Tensor:
        """Estimate the variance of a value outside of the axes from each update; (V, P) to (V).

        It holds the noise of a defence and what references do not span of the other members.
        """
        inside = self.coordinates(updates) / self.variances.sqrt()
        centred = (updates - self.mean).double().square().sum(1)
        values = (updates != 0).sum(1) - len(self.variances)
        outside = (centred - inside.square().sum(1)).clamp_min(RELATIVE * centred)
        return (outside / values.clamp_min(1)).clamp_min(TINY)

    def coordinates(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the products of centred rows with the axes; (n, P) to (n, L)."""
        return ((rows - self.mean) @ self.axes.T).double()


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
        centred = updates - background.mean
        noise = background.residual(updates)
        within = background.coordinates(updates)
        weights = 1 / (noise[:, None] + background.variances)
        found = updates.new_empty(len(candidates.inputs), observed.victims, dtype=torch.float64)
        for part, rows in gradient_rows(observed, candidates.inputs, candidates.labels):
            inside, shifted = background.coordinates(rows), rows - background.mean
            products = (shifted @ centred.T).double() - inside @ (within * weights).T
            lengths = shifted.double().square().sum(1, keepdim=True)
            squares = lengths - inside.square() @ weights.T
            least = RELATIVE * lengths.clamp_min(TINY)
            found[part] = products / (squares.maximum(least) * noise).sqrt()
        return candidates.of_each(found)
