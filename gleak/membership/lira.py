"""Likelihood ratio of a candidate's confidence after the round, with shadow clients."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from gleak.attacks.observation import Observation
from gleak.clients.base import ClientSpec
from gleak.clients.gradient_descent import descend
from gleak.clients.local_training import epoch_batches
from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.membership.base import Candidates, MembershipSpec
from gleak.membership.loss_difference import logits_of, parameters_after
from gleak.models.parameters import Tensors, independent_copy
from gleak.runtime.seeding import drawing_from, torch_stream

LEAST_DEVIATION = 1e-6
"""Least standard deviation of a confidence, which is in nats."""


@register("lira")
class LiRA(MembershipSpec):
    """Confidence of a candidate after the round, relative to that after rounds of shadow clients.

    The confidence is log(p / (1 - p)) of the candidate's label. Shadow clients train on references
    from the broadcast parameters, so no candidate is among their samples (offline, one-sided), and
    give its mean and standard deviation if the candidate is no member. The evidence is the
    confidence less the mean, over the deviation. Noise of a defence is not in the shadows. Over
    rounds the evidence is added.
    """

    source: ClassVar[str] = "LiRA (Carlini et al. 2022), Algorithm 1, offline, Equation 4"

    shadows: int = parameter(16, "shadow clients", source="ours; the paper: 128", ge=4)

    def sample_gradients(self, client: ClientSpec) -> float:
        steps = client.batch_size * client.gradients_per_sample * self.shadows
        rounds = client.rounds if self.rounds == "all" else 1
        passes = (client.victims + self.shadows) * client.victims * self.candidates / 3
        return rounds * (steps + passes)

    def evidence(self, observed: Observation, candidates: Candidates) -> torch.Tensor:
        inputs, labels = candidates.inputs, candidates.labels
        shadows = [_shadow(observed, candidates, number) for number in range(self.shadows)]
        outside = torch.stack(
            [confidences(logits_of(observed, own, inputs), labels) for own in shadows], dim=1
        )
        victims = [parameters_after(observed, victim) for victim in range(observed.victims)]
        inside = torch.stack(
            [confidences(logits_of(observed, own, inputs), labels) for own in victims], dim=1
        )
        deviation = outside.std(1, keepdim=True).clamp_min(LEAST_DEVIATION)
        return candidates.of_each((inside - outside.mean(1, keepdim=True)) / deviation)


def confidences(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Compute log(p / (1 - p)) of each sample's label, without overflow; (M, C) to (M)."""
    exact = logits.double()
    own = exact.gather(1, labels[:, None])
    others = exact.masked_fill(
        torch.nn.functional.one_hot(labels, logits.shape[1]) == 1, -torch.inf
    )
    return own[:, 0] - others.logsumexp(1)


def _shadow(observed: Observation, candidates: Candidates, number: int) -> Tensors:
    """Return the parameters after the round, if clients train on references; of a sum, the mean."""
    protocol, size = observed.trained or observed.protocol, len(candidates.reference_inputs)
    if not size:
        raise IncompatibleError(
            "lira needs references for its shadow clients, and there is no sample of the train "
            "split that is neither a victim's nor a candidate; use gradient_cosine"
        )
    share = protocol.batch_size // (protocol.clients or 1)
    if protocol.mini_batch == protocol.batch_size:
        protocol = replace(protocol, mini_batch=share)
    network = independent_copy(observed.model)
    for name in observed.update:
        network.get_parameter(name).requires_grad_()
    with drawing_from(torch_stream(observed.seed, "shadow", number)):
        drawn = torch.randperm(size).repeat(-(-protocol.batch_size // size))[: protocol.batch_size]
        clients = []
        for chosen in drawn.to(candidates.reference_labels.device).split(share):
            batches = epoch_batches(protocol, share)
            inputs, labels = (
                values[chosen]
                for values in (candidates.reference_inputs, candidates.reference_labels)
            )
            clients.append(descend(network, inputs, labels, batches, protocol).parameters)
    return {
        name: torch.stack([one[name].detach() for one in clients]).mean(0) for name in clients[0]
    }
