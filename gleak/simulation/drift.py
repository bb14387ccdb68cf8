"""How far clients of several local steps are from one step on their whole batch.

Attackers that take an update for one gradient of all its samples (AGIC Equation 4) rest on the
parameters hardly moving between the steps; drift says by how much they do.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from gleak.local_training.gradient_descent import gradients
from gleak.models.parameters import trained_parameters
from gleak.models.stochastic import deterministic_copy
from gleak.runtime.progress import Progress
from gleak.runtime.seeding import drawing_from, torch_stream
from gleak.simulation.perturbation import relative_error
from gleak.simulation.victims import deal, party_of, stream_of

if TYPE_CHECKING:
    from gleak.clients.base import ClientSpec

TOO_FAR = 0.5
log = logging.getLogger(__name__)


def measure_drift(
    client: ClientSpec,
    network: nn.Module,
    inputs: np.ndarray,
    labels: np.ndarray,
    seed: int,
    summed: int,
) -> np.ndarray | None:
    """Relative error of the mean gradient of each victim's steps, taken for that of its batch.

    The other gradient is that of the whole batch at the broadcast parameters. Both are taken
    without what layers draw, dropout's masks for one, which attackers do not know, so that their
    difference comes from the steps alone. The order of samples is that of the update, drawn anew:
    what is sent does not depend on this. Of clients that are observed for several rounds it is the
    drift of the first.

    Logs a warning where some victim's is more than `TOO_FAR`.

    Args:
        client: how they train.
        network: holds the broadcast parameters; left as it is.
        inputs: Shape (V, N, *shape).
        labels: Shape (V, N).
        seed: of the run.
        summed: clients in equal shares behind each update (`DefenseSpec.clients_per_update`).

    Returns:
        Shape (V); None of clients that take one step.
    """
    if client.local_descent is None:
        return None
    place, certain = next(network.parameters()).device, deterministic_copy(network)
    found = np.zeros(len(labels))
    with Progress(len(labels), "drift of the clients") as progress:
        for victim in range(len(labels)):
            some = client.round_positions(torch_stream(seed, "members", victim))[0].numpy()
            x, y = (torch.from_numpy(held[victim][some]).to(place) for held in (inputs, labels))
            mean = _mean_descent(client, certain, x, y, seed, victim, summed)
            found[victim] = relative_error(mean, _whole_gradient(client, certain, x, y))
            progress.advance()
    _warn_if_far(client, found.max())
    return found


def _mean_descent(
    client: ClientSpec,
    network: nn.Module,
    inputs: Tensor,
    labels: Tensor,
    seed: int,
    victim: int,
    summed: int,
) -> dict[str, Tensor]:
    """Mean gradient of the steps of all clients that a victim is the sum of."""
    assert client.local_descent is not None
    means = []
    for party, own in enumerate(zip(deal(inputs, summed), deal(labels, summed), strict=True)):
        random = stream_of("client", client, seed, victim, 0, *party_of(party, summed))
        with drawing_from(random):
            means.append(client.local_descent(network, *own).mean_gradient)
    return {name: torch.stack([mean[name] for mean in means]).mean(0) for name in means[0]}


def _whole_gradient(
    client: ClientSpec, network: nn.Module, inputs: Tensor, labels: Tensor
) -> dict[str, Tensor]:
    """That of the whole batch at the broadcast parameters."""
    return gradients(network, {**trained_parameters(network)}, inputs, labels, client.loss)


def _warn_if_far(client: ClientSpec, worst: float) -> None:
    if worst > TOO_FAR:
        log.warning(
            "client %s: the mean gradient of the local steps differs from that of the whole batch "
            "by up to %.2g times its length; attacks with client_model=one_step approximate the "
            "steps by one batch: choose a smaller local_lr, or client_model=unrolled",
            client,
            worst,
        )
