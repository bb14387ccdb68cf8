"""Regression of the update on the gradients of all candidates at once."""

from __future__ import annotations

from typing import ClassVar

from gleak.attacks.observation import Observation
from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.membership.base import Candidates, MembershipSpec
from gleak.membership.gradient_rows import all_rows, update_vectors

CHEAP_VALUES = 2**26
"""Values of the gradients of a victim's candidates up to which it is cheap: 256 MiB."""
BLOCK = 2**16
"""Values of a gradient that are converted to double precision at once."""
ROUNDING = 1e-12
"""Least ridge, relative to the mean squared length of a gradient."""


@register("regression")
class Regression(MembershipSpec):
    """Ridge regression of the update on the gradients of all candidates.

    The update of one step is the mean of the members' gradients: of K candidates N have the
    coefficient 1 / N, the others zero. Each coefficient has a prior with their mean, 1 / K, and
    their mean square, 1 / (N K), in place of their variance, of which it is K / (K - N) times; the
    noise of a value has the variance of the update outside of the candidates' span. The evidence is
    a coefficient's posterior mean. Over rounds coefficients are added. All candidates' gradients
    are in memory, 4 bytes a value.
    """

    source: ClassVar[str] = "ours; Bayesian linear regression (Lindley and Smith 1972)"

    def evidence(self, observed: Observation, candidates: Candidates) -> torch.Tensor:
        rows = range(observed.victims)
        return torch.stack(
            [_coefficients(observed.of_victim(v), candidates.of_victim(v)) for v in rows]
        )


def _coefficients(observed: Observation, candidates: Candidates) -> torch.Tensor:
    """Compute the posterior mean of each candidate's coefficient, of one victim; Shape (K)."""
    update = update_vectors(observed)[0]
    gradients = all_rows(observed, candidates.inputs, candidates.labels)
    count, batch = len(gradients), observed.batch_size
    products = gradients.new_zeros(count, count, dtype=torch.float64)
    shared = gradients.new_zeros(count, dtype=torch.float64)
    for start in range(0, gradients.shape[1], BLOCK):
        block = gradients[:, start : start + BLOCK].double()
        products += block @ block.T
        shared += block @ update[start : start + BLOCK].double()
    noise = _noise(products, shared, update)
    ridge = noise * batch * count + ROUNDING * products.diagonal().mean()
    prior = products.new_full((count,), 1 / count)
    system = products + ridge * torch.eye(count).to(products)
    return prior + torch.linalg.solve(system, shared - products @ prior)


def _noise(products: torch.Tensor, shared: torch.Tensor, update: torch.Tensor) -> torch.Tensor:
    """Estimate the variance of a value from the update outside of the gradients' span.

    Of fewer values than gradients nothing is outside; the estimate is then zero.
    """
    variances, turn = torch.linalg.eigh(products)
    kept = variances > ROUNDING * variances.max()
    inside = ((turn.T @ shared)[kept].square() / variances[kept]).sum()
    power, values = update.double().square().sum(), torch.count_nonzero(update)
    left = values - int(kept.sum())
    return (power - inside).clamp_min(0) / left if left > 0 else power.new_zeros(())
