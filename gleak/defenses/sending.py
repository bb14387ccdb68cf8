"""Client and server side of one round: the client's defended update, and the server's step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gleak.artifacts.encodings import Encoded
from gleak.core.lazy import torch
from gleak.defenses.base import DefenseSpec, Memory, encode
from gleak.models.parameters import trained_parameters
from gleak.runtime.seeding import drawing_from


@dataclass(frozen=True)
class RoundStreams:
    """Random streams of one client in one round.

    Args:
        training: for local training, and for defences that use the samples.
        defense: for defences that only use the update.
    """

    training: torch.Generator
    defense: torch.Generator


def send_update(
    defense: DefenseSpec,
    compute: Callable[[], dict[str, torch.Tensor]],
    network: torch.nn.Module,
    inputs: torch.Tensor,
    labels: torch.Tensor,
    streams: RoundStreams,
    memory: Memory,
) -> tuple[dict[str, Encoded], dict[str, torch.Tensor]]:
    """Compute one client's update, apply the defence and encode the result.

    Args:
        defense: defence of the client.
        compute: returns the update before defences that act on updates; by parameter,
            Shape (R, *shape).
        network: network with the broadcast parameters.
        inputs: samples of the client, Shape (N, *shape).
        labels: Shape (N).
        streams: random streams of this client in this round.
        memory: values not sent in earlier rounds, changed in place.

    Returns:
        The update as sent, and as computed.
    """
    computed, protected = compute_update(
        defense, compute, network, inputs, labels, streams.training
    )
    on_cpu = {name: value.detach().cpu() for name, value in protected.items()}
    return protect(defense, on_cpu, streams.defense, memory), computed


def protect(
    defense: DefenseSpec,
    update: dict[str, torch.Tensor],
    generator: torch.Generator,
    memory: Memory,
) -> dict[str, Encoded]:
    """Apply the part of a defence that needs the update alone; see `DefenseSpec.protect`.

    Parameters without values, of which no defence can compute a norm or a share, are sent as they
    are.
    """
    filled = {name: value for name, value in update.items() if value.numel()}
    sent = defense.protect(filled, generator, memory) if filled else {}
    return {name: sent.get(name) or encode(value) for name, value in update.items()}


def compute_update(
    defense: DefenseSpec,
    compute: Callable[[], dict[str, torch.Tensor]],
    network: torch.nn.Module,
    inputs: torch.Tensor,
    labels: torch.Tensor,
    stream: torch.Generator,
) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Compute one client's update, and apply the part of the defence that needs its samples.

    Everything is computed on the device of the network; arguments as for `send_update`.

    Returns:
        The update without and with that part, by parameter, Shape (R, *shape).
    """
    with drawing_from(stream):
        computed = compute()
        return computed, defense.with_samples(computed, network, inputs, labels)


def server_step(
    network: torch.nn.Module, mean_update: Mapping[str, torch.Tensor], rate: float
) -> None:
    """Subtract ``rate`` times the mean update from the trained parameters, in place."""
    with torch.no_grad():
        for name, parameter in trained_parameters(network).items():
            parameter.sub_(rate * mean_update[name].to(parameter))
