"""Client drift: difference between several local steps and one step on the whole batch.

Attacks that treat an update as one gradient of all its samples (AGIC Equation 4) assume that the
parameters hardly change between the steps; drift measures how much the gradients do.
"""

from __future__ import annotations

import logging

import numpy as np

from gleak.clients.base import ClientSpec
from gleak.clients.gradient_descent import gradients
from gleak.core.lazy import torch
from gleak.models.parameters import as_inputs, trained_parameters
from gleak.models.stochastic import deterministic_copy
from gleak.runtime.progress import Progress
from gleak.runtime.seeding import drawing_from, torch_stream
from gleak.simulation.victims import Streams, mean_of, relative_error, split_among_clients

MAX_DRIFT = 0.5
log = logging.getLogger(__name__)


def measure_drift(
    client: ClientSpec,
    network: torch.nn.Module,
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
        client: of the victims.
        network: with the broadcast parameters; not changed.
        inputs: Shape (V, N, *shape).
        labels: Shape (V, N).
        seed: of the run.
        clients_per_update: of each victim, with equal shares of its samples.

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
            shares = (split_among_clients(values, clients_per_update) for values in (x, y))
            means = []
            for member, samples in enumerate(zip(*shares, strict=True)):
                with drawing_from(streams.draw("client", victim, 0, member)):
                    means.append(client.local_descent(network, *samples).mean_gradient)
            whole = gradients(network, {**trained_parameters(network)}, x, y, client.loss)
            drift[victim] = relative_error(mean_of(means), whole)
            progress.advance()
    if drift.max() > MAX_DRIFT:
        log.warning(
            "client %s: the mean gradient of the local steps differs from that of the whole batch "
            "by up to %.2g times its norm; attacks with client_model=one_step approximate the "
            "steps by one batch: choose a smaller local_lr, or client_model=unrolled",
            client,
            drift.max(),
        )
    return drift
