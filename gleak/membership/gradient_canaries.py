"""Canaries that are gradients of random directions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gleak.artifacts.audit_trials import AuditTrials
from gleak.clients.base import ClientSpec
from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.core.spec import changed, parameter
from gleak.defenses.base import DefenseSpec, NoDefense
from gleak.membership.canaries import RUNS, CanarySpec, Sent, Subject, sent_updates
from gleak.runtime.seeding import derived_seed, stream


@register("gradient_canaries")
class GradientCanaries(CanarySpec):
    """Gradients of random directions, or their opposites: the worst case of a bounded mechanism.

    The network is replaced by a linear one whose loss is minus its output, so that the gradient of
    a sample is the sample, and any gradient can be given to the defence as it is. Everything else
    is that of the cell: local steps, rounds, clients of a sum, clipping and noise. All that a
    defence protects takes part as a canary or as its opposite, the two neighbours that are
    farthest apart: under ``fedcdp`` each sample, else each client. Canaries of one run are
    orthogonal, so that isotropic Gaussian noise is independent along them, and one run counts as
    that many trials. For other noise they may depend on each other: ``method=one_run`` allows it.
    Of several rounds those count in which the canary took part, and a sample that no step takes
    (``drop_last``) is no trial.

    Training by others between two rounds is left out: it does not change the gradient of a linear
    network.

    A canary is longer than the norms to which defences clip, and is cut to that norm by them. A
    defence that does not clip protects no canary of any length; what is measured is then the
    epsilon of canaries of this ``norm``.
    """

    source = "Andrew et al. 2024; Nasr et al. 2023; Maddock et al. 2023"

    norm: float = parameter(1000.0, "L2 norm of a canary before the defence", unit="gradient", gt=0)
    values: int = parameter(256, "trained values of the linear network", ge=1)

    def check_defense(self, client: ClientSpec, defense: DefenseSpec) -> None:
        super().check_defense(client, defense)
        units = protected_units(client, defense)
        if units > self.values:
            raise IncompatibleError(
                f"audit {self}: {units} canaries in one run of {client} under {defense} cannot be "
                f"orthogonal among values={self.values}; choose at least {units}"
            )

    def test(self, subject: Subject, seed: int) -> AuditTrials:
        defense, client = subject.defense, linear_client(subject.client)
        units = protected_units(client, defense)
        random = stream(seed, "directions")
        directions = np.linalg.qr(random.normal(size=(self.values, units)))[0].T
        plain = self._sent(client, NoDefense(), directions, np.ones((1, units)), seed)
        expected, taken = _projections(plain, directions, client)
        coins, noise = stream(seed, "coins"), derived_seed(seed, "runs")
        scores, included, first, left = [], [], 0, self.trials
        while left > 0:
            runs = min(RUNS, math.ceil(left / taken.sum()))
            present = coins.random((runs, units)) < 0.5
            signs = np.where(present, 1.0, -1.0)
            sent = self._sent(changed(client, {"first": first}), defense, directions, signs, noise)
            along, used = _projections(sent, directions, client)
            scores.append(along[used] * np.sign(expected.sum()))
            included.append(present[used])
            first, left = first + runs, left - used.sum()
        return AuditTrials(
            score=np.concatenate(scores)[: self.trials],
            present=np.concatenate(included)[: self.trials],
            noise_multipliers=sent.noise_multipliers,
        )

    def _sent(
        self,
        client: ClientSpec,
        defense: DefenseSpec,
        directions: np.ndarray,
        signs: np.ndarray,
        seed: int,
    ) -> Sent:
        """Return the updates of runs with canaries along directions, (U, M), or against them.

        The signs, Shape (V, U), say which.
        """
        network = torch.nn.utils.skip_init(torch.nn.Linear, self.values, 1, bias=False)
        torch.nn.init.zeros_(network.weight)
        defense.check_network(network, (self.values,))
        samples = self.norm * signs[:, :, None] * directions
        inputs = np.repeat(samples, client.batch_size // len(directions), axis=1)
        number, size = inputs.shape[:2]
        labels = np.zeros((number, size), dtype=np.int64)
        return sent_updates(client, defense, network, inputs.astype(np.float32), labels, seed)


def _projections(
    sent: Sent, directions: np.ndarray, client: ClientSpec
) -> tuple[np.ndarray, np.ndarray]:
    """Return the sums of updates along directions, over the rounds that use each, and which do.

    Both Shape (V, U), of directions (U, M).
    """
    units = len(directions)
    used = sent.uses(units, client.batch_size // units)
    return ((sent.updates @ directions.T) * used).sum(axis=1), np.asarray(used.any(axis=1))


def linear_client(client: ClientSpec) -> ClientSpec:
    """Return a client that trains a linear network of one output, whose gradient is the sample."""
    plain: dict[str, Any] = {
        "loss": "nll_raw",
        "label_smoothing": None,
        "autocast": None,
        "augmentation": None,
        "batch_norm": "evaluation",
        "labels": "random",
        "classes": None,
        "victims": 1,
        "repeats": 1,
        "first": 0,
    }
    if "between" in type(client).model_fields:
        plain["between"] = None
    one: ClientSpec = changed(client, plain)
    return one


def protected_units(client: ClientSpec, defense: DefenseSpec) -> int:
    """Return the number of samples, or of clients, that a defence protects each by itself."""
    return client.batch_size if defense.takes_single_samples else defense.clients_per_update
