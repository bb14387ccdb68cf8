"""Client drift: difference between several local steps and one step on the whole batch.

Attacks that treat an update as one gradient of all its samples (AGIC Equation 4) assume that the
parameters hardly change between the steps; drift measures how much the gradients do.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from gleak.local_training.gradient_descent import gradients
from gleak.models.parameters import as_inputs, trained_parameters
from gleak.models.stochastic import deterministic_copy
from gleak.runtime.progress import Progress
from gleak.runtime.seeding import drawing_from, torch_stream
from gleak.simulation.update_error import mean_of, relative_error
from gleak.simulation.victims import Streams, split_among_clients

if TYPE_CHECKING:
    from gleak.clients.base import ClientSpec

MAX_DRIFT = 0.5
log = logging.getLogger(__name__)


def measure_drift(
    client: ClientSpec,
    network: nn.Module,
    inputs: np.ndarray,
    labels: np.ndarray,
    seed: int,
    clients_per_update: int,
) -> np.ndarray | None:
    """Compute the relative error of each victim's mean gradient as gradient of its whole batch.

    The gradient of the whole batch is computed at the broadcast parameters. Both are computed
    without stochastic layers such as dropout, whose masks attackers do not know, so that they only
    differ by the steps. The order of samples is that of the update, drawn again; the update does
    not depend on this function. For clients observed for several rounds it is the drift of the
    first round.

    Logs a warning if the drift of a victim is larger than `MAX_DRIFT`.

    Args:
        client: client of the victims.
        network: network with the broadcast parameters; not changed.
        inputs: Shape (V, N, *shape).
        labels: Shape (V, N).
        seed: seed of the run.
        clients_per_update: clients of each victim, with equal shares of its samples
            (`DefenseSpec.clients_per_update`).

    Returns:
        Shape (V); None for clients with one step.
    """
    if client.local_descent is None:
        return None
    device, network = next(network.parameters()).device, deterministic_copy(network)
    streams = Streams(client, clients_per_update, seed)
    drift = np.zeros(len(labels))
    with Progress(len(labels), "drift of the clients") as progress:
        for victim in range(len(labels)):
            first = client.round_positions(torch_stream(seed, "members", victim))[0].numpy()
            x = as_inputs(network, inputs[victim][first])
            y = torch.from_numpy(labels[victim][first]).to(device)
            mean = _mean_gradient(client, network, x, y, streams, victim)
            drift[victim] = relative_error(mean, _whole_gradient(client, network, x, y))
            progress.advance()
    _warn_if_large(client, drift.max())
    return drift


def _mean_gradient(
    client: ClientSpec,
    network: nn.Module,
    inputs: Tensor,
    labels: Tensor,
    streams: Streams,
    victim: int,
) -> Mapping[str, Tensor]:
    """Compute the mean gradient of the steps of all clients of a victim."""
    assert client.local_descent is not None
    groups = (split_among_clients(each, streams.clients_per_update) for each in (inputs, labels))
    means = []
    for member, samples in enumerate(zip(*groups, strict=True)):
        with drawing_from(streams.draw("client", victim, 0, member)):
            means.append(client.local_descent(network, *samples).mean_gradient)
    return mean_of(means)


def _whole_gradient(
    client: ClientSpec, network: nn.Module, inputs: Tensor, labels: Tensor
) -> dict[str, Tensor]:
    """Compute the gradient of the whole batch at the broadcast parameters."""
    return gradients(network, {**trained_parameters(network)}, inputs, labels, client.loss)


def _warn_if_large(client: ClientSpec, drift: float) -> None:
    if drift > MAX_DRIFT:
        log.warning(
            "client %s: the mean gradient of the local steps differs from that of the whole batch "
            "by up to %.2g times its norm; attacks with client_model=one_step approximate the "
            "steps by one batch: choose a smaller local_lr, or client_model=unrolled",
            client,
            drift,
        )
