"""Members that a server can tell from other samples of a client, cheaply enough for every round."""

from __future__ import annotations

import logging
import math

import numpy as np
import torch
from torch import Tensor

from gleak.artifacts.membership import FEWEST, digests_of
from gleak.attacks.observation import Observation
from gleak.captures.frameworks.observers import AREA, FOUND
from gleak.core.errors import IncompatibleError
from gleak.membership.base import Candidates, MembershipSpec
from gleak.membership.gradient_cosine import GradientCosine
from gleak.membership.infer_members import membership_of
from gleak.membership.regression import CHEAP_VALUES, Regression
from gleak.metrics.audits.base import evenly_spaced
from gleak.metrics.discrimination import AUC, RankedCandidates, TruePositiveRate
from gleak.models.parameters import as_inputs

MOST_MEMBERS, MOST_OTHERS = 100, 200
Samples = tuple[Tensor, Tensor]
log = logging.getLogger(__name__)


def told_members(
    observed: Observation, own: Samples, others: Samples, has_derivative: bool
) -> dict[str, float]:
    """Return the share of members that are told at 1% false positives, and the area, by name.

    Both are NaN, and the reason is logged, if there are fewer than 20 candidates or samples have no
    gradient of their own.

    Args:
        observed: what the server received, as gradients.
        own: inputs, Shape (N, *shape), and labels, Shape (N), of the update.
        others: the same of other samples of the client.
        has_derivative: the network computes with a graph.
    """
    unmeasured = {FOUND: math.nan, AREA: math.nan}
    members = _some(*own, MOST_MEMBERS)
    rest = _some(*_without(others, own), MOST_OTHERS)
    number = len(members[1]) + len(rest[1])
    if number < FEWEST or not len(rest[1]) or not has_derivative:
        log.warning(
            "members are not measured: %d samples of the update and %d others are too few to "
            "compare, or the network computes without a graph",
            len(members[1]),
            len(rest[1]),
        )
        return unmeasured
    inputs, labels = (torch.cat(parts) for parts in zip(members, rest, strict=True))
    member = np.arange(number)[None] < len(members[1])
    device = next(observed.model.parameters()).device
    candidates = Candidates(
        inputs=as_inputs(observed.model, inputs.numpy()),
        labels=labels.to(device),
        positions=torch.arange(number, device=device)[None],
        reference_inputs=as_inputs(observed.model, inputs[:0].numpy()),
        reference_labels=labels[:0].to(device),
    )
    try:
        found = [
            RankedCandidates(membership_of(method, observed, candidates).evidence, member)
            for method in _methods(observed, len(own[1]), number)
        ]
    except IncompatibleError as error:
        log.warning("members are not measured: %s", error)
        return unmeasured
    return {
        name: max(float(np.mean(metric.measure(ranked)[0])) for ranked in found)
        for name, metric in ((FOUND, TruePositiveRate()), (AREA, AUC()))
    }


def _methods(observed: Observation, size: int, number: int) -> list[MembershipSpec]:
    """Return the methods that are cheap: a regression needs all members, and their one step."""
    values = number * sum(value[0, 0].numel() for value in observed.update.values())
    one_step = observed.protocol.local_steps == 1
    if one_step and size <= MOST_MEMBERS and values <= CHEAP_VALUES:
        return [GradientCosine(), Regression()]
    return [GradientCosine()]


def _some(inputs: Tensor, labels: Tensor, most: int) -> Samples:
    chosen = torch.from_numpy(evenly_spaced(len(labels), most))
    return inputs[chosen].float(), labels[chosen]


def _without(others: Samples, own: Samples) -> Samples:
    """Return the other samples, each once, without those of the update."""
    seen = {*digests_of(own[0].float().numpy())}
    kept = []
    for place, digest in enumerate(digests_of(others[0].float().numpy())):
        if digest not in seen:
            seen.add(digest)
            kept.append(place)
    return others[0][kept], others[1][kept]
