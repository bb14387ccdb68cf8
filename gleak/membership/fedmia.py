"""Membership by the other clients of the round, as in FedMIA."""

from __future__ import annotations

from typing import ClassVar

from gleak.attacks.observation import Observation
from gleak.clients.base import ClientSpec
from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.data.base import DatasetSpec
from gleak.membership.base import Candidates, MembershipSpec
from gleak.membership.gradient_cosine import cosines
from gleak.models.base import ModelSpec

FEWEST_CLIENTS = 3
LEAST_VARIANCE = 1e-8
"""Added to the variance of the other clients' cosines, as the authors do."""


@register("fedmia")
class FedMIA(MembershipSpec):
    """Probability that a client without the candidate has a smaller cosine than the target.

    The measurement is the cosine of the candidate's gradient with a client's update. Those of all
    other clients of the round give the mean and the standard deviation of a normal distribution,
    that of clients without the candidate; the evidence is the target's place in it (a one-tailed
    test). Over rounds the probabilities are added. Of the paper the abstract was read, and the
    authors' code: it treats no outliers among the other clients, averages every tenth round with
    equal weights, and also reports the mean of the logarithms, which is left out here.
    """

    source: ClassVar[str] = (
        "FedMIA (Zhu et al. 2025), abstract and the authors' code (Liar-Mask/FedMIA)"
    )

    def check(self, dataset: DatasetSpec, model: ModelSpec, client: ClientSpec) -> None:
        super().check(dataset, model, client)
        if client.victims < FEWEST_CLIENTS:
            raise IncompatibleError(
                f"membership {self} compares a client with the others of its round, and client "
                f"{client} has {client.victims} victims; use victims={FEWEST_CLIENTS} or more"
            )
        if client.repeats > 1:
            raise IncompatibleError(
                f"membership {self} compares a client with others that lack its samples, and "
                f"{client.repeats} victims of client {client} have the same; leave out repeats"
            )

    def evidence(self, observed: Observation, candidates: Candidates) -> torch.Tensor:
        if observed.victims < FEWEST_CLIENTS:
            raise IncompatibleError(
                f"membership {self} compares a client with the others of its round, and these are "
                f"{observed.victims} clients; choose another method"
            )
        if observed.sent:
            each = [cosines(observed.of_victim(v), candidates) for v in range(observed.victims)]
            measured = torch.cat(each, dim=1).double()
        else:
            measured = cosines(observed, candidates).double()
        return candidates.of_each(_places(measured))


def _places(measured: torch.Tensor) -> torch.Tensor:
    """Return each value's place in the normal distribution of the others of its row; (M, V)."""
    others = measured.shape[1] - 1
    mean = (measured.sum(1, keepdim=True) - measured) / others
    squares = measured.square().sum(1, keepdim=True) - measured.square()
    variance = (squares / others - mean.square()).clamp_min(0) + LEAST_VARIANCE
    return torch.special.ndtr((measured - mean) / variance.sqrt())
