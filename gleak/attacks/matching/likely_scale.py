"""Scale of a sample whose gradient is known up to a factor and noise, as of clients that clip it.

Sample and factor explain the gradient of a dense first layer by their product. Its bias gradient
and the predictions tell the scale, but in a search they are outweighed: some ReLUs are near their
kink, change sides at any change of scale, and count more. Here a network is compared whose
activities are read from what was sent, and do not depend on the scale.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gleak.artifacts.protocol import Protocol
from gleak.attacks.observation import Observation
from gleak.clients.gradient_descent import gradients
from gleak.core.lazy import torch
from gleak.models.differentiation import sample_losses, smoothed
from gleak.models.layer_search import first_dense_input
from gleak.models.parameters import Tensors, independent_copy

FACTORS = np.exp(np.linspace(-0.5, 0.5, 101))
"""Scales that are compared, relative to that of the given samples."""
SPREAD = 0.1
"""Standard deviation of the scale's logarithm before: what the search leaves open of it."""
EXACT = 1e-12
"""Squared sine up to which directions are equal."""
CLEAR = 4.0
"""Multiple of the median error from which on a unit's value, if it is active, is told from zero."""
READINGS = 2
"""Times that activities are read, as the predictions by which they are depend on them."""


def likely_scale(observation: Observation, inputs: np.ndarray, labels: np.ndarray) -> float:
    """Compute the posterior mean of the scale of a sample that is right but for it.

    What was sent, u, is c g(s x) plus normal noise, c and the size of the noise unknown, so minus
    the logarithm of the likelihood of a scale s is M / 2 log(1 - cos^2(u, g(s x))) for M values.
    If clients clip each parameter by itself, this is the sum over parameters. Of those that were
    too short to be clipped c is 1, and the share of u that g(s x) does not explain,
    |u - g|^2 / |u|^2, takes the place of 1 - cos^2; without such nothing tells the scale, which is
    1 then. Before, s is log-normal about 1. If the most probable of `FACTORS` is the first or the
    last, the sample is wrong in more than its scale, which is 1 then, too.

    Args:
        observation: of one victim, the gradient of one sample.
        inputs: Shape (1, *shape).
        labels: Shape (1).
    """
    network, protocol = independent_copy(observation.model), observation.protocol
    scale = protocol.update_scale
    sent = {name: value[0, 0] / scale for name, value in observation.update.items()}
    parameters = {name: network.get_parameter(name).requires_grad_() for name in sent}
    parts = parts_of(sent, protocol)
    if protocol.clipping == "parameter" and all(part.is_clipped for part in parts):
        return 1.0
    like = next(iter(sent.values()))
    samples = torch.from_numpy(inputs).to(like)
    given = torch.from_numpy(labels).to(like.device)
    hold_activities(network, samples, given, sent, protocol)
    found = (gradients(network, parameters, s * samples, given, protocol) for s in FACTORS)
    criterion = np.array([sum(part.unlikelihood(each) for part in parts) for each in found])
    criterion += np.square(np.log(FACTORS) / SPREAD) / 2
    if criterion.argmin() in (0, len(FACTORS) - 1):
        return 1.0
    weights = np.exp(criterion.min() - criterion)
    return float((weights * FACTORS).sum() / weights.sum())


def hold_activities(
    network: torch.nn.Module,
    inputs: torch.Tensor,
    labels: torch.Tensor,
    sent: Tensors,
    protocol: Protocol,
) -> None:
    """Hold the activities of a network's ReLUs at a sample, those of the first layer as sent.

    The gradient of a dense layer's weights is d a^T for its inputs a. A unit is active if its value
    of d is nearer to what it has if it is active than to zero, where noise does not hide which.
    """
    from gleak.models.layers import HeldReLU

    held = HeldReLU.in_place(network)
    entry = first_dense_input(network, inputs)
    if entry is None or not held or f"{entry.layer}.weight" not in sent:
        return
    before = network.get_submodule(entry.layer)(entry.embeddings)
    first = next((each for each in held if torch.equal(each.inputs, before)), None)
    if first is None:
        return
    found = entry.embeddings @ sent[f"{entry.layer}.weight"].T / entry.embeddings.square().sum()
    targets = torch.nn.functional.one_hot(labels, network(inputs).shape[1]).to(inputs)
    targets = smoothed(targets, protocol.label_smoothing)
    for _ in range(READINGS):
        losses = sample_losses(protocol.loss, network(inputs), targets)
        (active,) = torch.autograd.grad(losses.mean(), first.outputs)
        expected = active * first.activities
        active = active * (found * expected).sum() / expected.square().sum()
        errors = (found - active * first.activities).abs()
        is_read = active.abs() > CLEAR * errors.median()
        first.activities = torch.where(
            is_read, (found - active).abs() < found.abs(), first.activities
        )


@dataclass(frozen=True)
class SentPart:
    """Parameters that clients multiply by one factor, as they were sent.

    Args:
        sent: values by name of the parameter; Shape (*shape).
        is_clipped: True if the factor is unknown, else it is 1.
    """

    sent: Tensors
    is_clipped: bool

    def unlikelihood(self, found: Tensors) -> float:
        """Compute minus the logarithm of the likelihood of gradients, up to a constant."""
        vector = torch.nn.utils.parameters_to_vector
        observed = vector(self.sent.values()).double()
        gradient = vector([found[name] for name in self.sent]).double()
        if self.is_clipped:
            share = 1 - float(torch.nn.functional.cosine_similarity(observed, gradient, dim=0)) ** 2
        else:
            share = float((observed - gradient).norm() / observed.norm()) ** 2
        return len(observed) / 2 * math.log(max(share, EXACT))


def parts_of(sent: Tensors, protocol: Protocol) -> list[SentPart]:
    """Return the parameters of an update that clients have clipped together."""
    if protocol.clipping != "parameter":
        return [SentPart(sent, is_clipped=True)]
    return [
        SentPart({name: value}, is_clipped=protocol.may_be_clipped(value))
        for name, value in sent.items()
        if value.any()
    ]
