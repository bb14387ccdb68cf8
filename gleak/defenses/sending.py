"""Client and server side of one round: the client's defended update, and the server's step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gleak.artifacts.encodings import Encoded
from gleak.core.errors import SpecError
from gleak.core.lazy import torch
from gleak.defenses.base import DefenseSpec, Memory, encode
from gleak.models.parameters import Tensors, trained_parameters
from gleak.runtime.seeding import drawing_from


@dataclass(frozen=True)
class RoundStreams:
    """Random streams of one client in one round.

    ``training`` is also for defences that use the samples, ``defense`` for those that do not.
    """

    training: torch.Generator
    defense: torch.Generator


def send_update(
    defense: DefenseSpec,
    compute: Callable[[], Tensors],
    network: torch.nn.Module,
    inputs: torch.Tensor,
    labels: torch.Tensor,
    streams: RoundStreams,
    memory: Memory,
) -> tuple[dict[str, Encoded], Tensors]:
    """Compute one client's update, apply the defence and encode the result.

    Args:
        defense: of the client.
        compute: returns the update before defences that act on updates; Shape (R, *shape).
        network: with the broadcast parameters.
        inputs: samples of the client, Shape (N, *shape).
        labels: Shape (N).
        streams: of this client in this round.
        memory: values not sent in earlier rounds, changed in place.

    Returns:
        The update as sent, and as computed.
    """
    stream = streams.training
    computed, protected = compute_update(defense, compute, network, inputs, labels, stream)
    on_cpu = {name: value.detach().cpu() for name, value in protected.items()}
    return protect(defense, on_cpu, streams.defense, memory), computed


def protect(
    defense: DefenseSpec, update: Tensors, generator: torch.Generator, memory: Memory
) -> dict[str, Encoded]:
    """Apply `DefenseSpec.protect`; parameters without values, so without norms, are left alone.

    Raises:
        SpecError: the result is not an encoded value for each parameter.
    """
    filled = _with_values(update)
    sent = defense.protect(filled, generator, memory) if filled else {}
    _check_protected(defense, sent, filled)
    return _whole(update, sent)


def encode_received(defense: DefenseSpec, update: Tensors) -> dict[str, Encoded]:
    """Apply `DefenseSpec.encode_received`; parameters without values are encoded as they are."""
    filled = _with_values(update)
    return _whole(update, defense.encode_received(filled) if filled else {})


def _with_values(update: Tensors) -> Tensors:
    """Return the parameters of which norms and largest values exist."""
    return {name: value for name, value in update.items() if value.numel()}


def _whole(update: Tensors, sent: Mapping[str, Encoded]) -> dict[str, Encoded]:
    """Return all parameters of an update, those that were not encoded as they are."""
    return {name: sent[name] if name in sent else encode(value) for name, value in update.items()}


def _check_protected(defense: DefenseSpec, sent: Any, update: Tensors) -> None:
    text = f"defense {defense}: protect"
    if not isinstance(sent, Mapping):
        raise SpecError(f"{text} returned {type(sent).__name__}, expected a dictionary by name")
    if missing := [name for name in update if name not in sent]:
        raise SpecError(
            f"{text} left out {', '.join(missing)}; return every parameter, with "
            "gleak.defenses.base.encode(torch.zeros_like(value)) for one that is not sent"
        )
    if unknown := [str(name) for name in sent if name not in update]:
        raise SpecError(f"{text} returned {', '.join(unknown)}, which the update does not have")
    for name, value in sent.items():
        if not isinstance(value, Encoded):
            raise SpecError(
                f"{text} returned {type(value).__name__} for {name}, expected "
                "gleak.defenses.base.encode(value)"
            )


def compute_update(
    defense: DefenseSpec,
    compute: Callable[[], Tensors],
    network: torch.nn.Module,
    inputs: torch.Tensor,
    labels: torch.Tensor,
    stream: torch.Generator,
) -> tuple[Tensors, Tensors]:
    """Compute one client's update, without and with the part of the defence that needs its samples.

    Everything is computed on the device of the network; arguments as for `send_update`.
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
