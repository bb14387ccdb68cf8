"""Values of ``curves: true``: from a client that hides little to that of the deployment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import ceil, isqrt
from typing import Any

from gleak.clients.base import ClientSpec
from gleak.clients.fedavg import FedAvg
from gleak.core.lazy import torch
from gleak.training.federated import Federated
from gleak.training.untrained import Untrained

LARGER, ROUNDS = 4, 5
"""Batch beside one of a single sample, and rounds beside a network that is not trained."""


def usual_curves(training: Any, client: ClientSpec) -> dict[str, list[Any]]:
    """Return the fields on which leakage usually hangs, each with values up to the deployment's.

    The state of the optimiser, which only the client knows, is among them if it has one.
    """
    curves: dict[str, Iterable[Any]] = {"batch_size": _batches(client)}
    if isinstance(client, FedAvg):
        curves["local_steps"] = _steps(client)
        if client.optimizer.initial(torch.zeros(1)):
            curves["state"] = ["zero", "kept"]
    if isinstance(training, Federated | Untrained):
        curves["rounds"] = [0, getattr(training, "rounds", ROUNDS)]
    unique: Mapping[str, list[Any]] = {key: [*dict.fromkeys(v)] for key, v in curves.items()}
    return {field: values for field, values in unique.items() if len(values) > 1}


def _batches(client: ClientSpec) -> list[int]:
    size = client.batch_size
    return [1, LARGER] if size == 1 else [1, isqrt(size), size]


def _steps(client: FedAvg) -> list[int]:
    """Return one step, an epoch or a number in the middle, and all."""
    steps = client.local_steps
    epoch = ceil(client.batch_size / client.samples_per_step)
    return sorted({1, epoch if 1 < epoch < steps else isqrt(steps), steps})
