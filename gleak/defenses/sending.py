"""One client's round: its update is computed, defended and encoded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Generator, Tensor, nn

from gleak.artifacts.encodings import Encoded
from gleak.defenses.base import DefenseSpec, Memory
from gleak.runtime.seeding import drawing_from


@dataclass(frozen=True)
class RoundStreams:
    """Random streams of one client in one round.

    Args:
        training: of local training, and of defences that see the samples.
        defense: of defences that see the update alone.
    """

    training: Generator
    defense: Generator


def send_update(
    defense: DefenseSpec,
    compute: Callable[[], dict[str, Tensor]],
    network: nn.Module,
    inputs: Tensor,
    labels: Tensor,
    streams: RoundStreams,
    memory: Memory,
) -> tuple[dict[str, Encoded], dict[str, Tensor]]:
    """Compute one client's update, defend it and encode it as it is sent.

    Args:
        defense: of the client.
        compute: returns the update before defences that act on updates; for each parameter,
            Shape (R, *shape).
        network: holds the broadcast parameters.
        inputs: of the client, Shape (N, *shape).
        labels: Shape (N).
        streams: of this client in this round.
        memory: what the client kept back in earlier rounds, changed in place.

    Returns:
        The update as sent, and as computed.
    """
    with drawing_from(streams.training):
        computed = compute()
        shown = defense.with_samples(computed, network, inputs, labels)
    on_cpu = {name: value.detach().cpu() for name, value in shown.items()}
    return defense.protect(on_cpu, streams.defense, memory), computed
