"""Updates of a client, and defences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import SupportsIndex, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from gleak.api import tensors
from gleak.api.given_specs import ClientLike, as_spec, client_of, with_client
from gleak.api.tensors import ArrayLike, Gradients, Labels, checked_inputs, checked_seed
from gleak.api.user_network import examine, own_modes, prepared_copy
from gleak.artifacts.encodings import Encoded
from gleak.core.errors import ArtifactError, IncompatibleError
from gleak.defenses.base import DefenseSpec, Memory
from gleak.defenses.sending import protect
from gleak.models.batch_norm import batch_statistics
from gleak.models.examination import count_logits
from gleak.models.parameters import prefix_of, trained_parameters
from gleak.simulation.victims import Simulation, Streams

G = TypeVar("G", bound=Gradients)


@with_client()
@own_modes()
def compute_update(
    model: nn.Module,
    inputs: ArrayLike,
    labels: Labels,
    *,
    client: ClientLike = "fedsgd",
    defense: str | DefenseSpec = "none",
    seed: SupportsIndex = 0,
) -> dict[str, Tensor]:
    """Compute the update that a client sends, as simulated clients of the workflow do.

    Dropout and other random layers draw. Equal parameters, samples and seeds give the update of the
    workflow's first victim.

    Args:
        model: network with the broadcast parameters, which maps samples with values in [0, 1] to
            logits; it is not changed.
        inputs: samples with values in [0, 1], Shape (N, *shape): a tensor, an array or a sequence.
        labels: their labels, Shape (N): class indices of any integer type, in any sequence.
        client: how it trains, such as ``"fedavg+local_steps=5+local_lr=0.1"``; see `gleak.attack`.
            Its batch size is the number of samples.
        defense: defence of the client (see ``gleak list defense``). Of several clients whose
            updates are summed (``secure_aggregation``) the samples are divided among them.
        seed: seed of random layers and of the defence, not negative.

    Returns:
        For each trained parameter what the server decodes, by name; Shape (*shape).

    Raises:
        SpecError: an unknown client, defence or field, or a value of another type or out of range.
        ArtifactError: invalid samples or labels.
        IncompatibleError: the model cannot be trained, or the defence does not support it, or makes
            values infinite.

    Example:
        >>> import gleak, torch
        >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 4))
        >>> images, labels = torch.rand(2, 3, 4, 4), torch.tensor([0, 3])
        >>> steps = "fedavg+local_steps=5+local_lr=0.1"
        >>> sent = gleak.compute_update(model, images, labels, client=steps)
        >>> {name: tuple(value.shape) for name, value in sent.items()}
        {'1.weight': (4, 48), '1.bias': (4,)}
        >>> signs = gleak.compute_update(model, images, labels, defense="signsgd")
        >>> sorted(set(signs["1.bias"].sign().tolist()))
        [-1.0, 1.0]
    """
    samples, seed = checked_inputs(inputs), checked_seed(seed)
    network = prepared_copy(model)
    shape = tuple(samples.shape[1:])
    targets = tensors.checked_labels(labels, len(samples), examine(network, shape))
    one = client_of(client, samples=len(samples))
    if one.batch_size != len(samples):
        raise ArtifactError(
            f"inputs: {len(samples)} samples, but client {one} has {one.batch_size}; give all of "
            "its samples, or leave batch_size out"
        )
    one.check_network(network, shape)
    network = one.run(network)
    defended: DefenseSpec = as_spec("defense", defense)
    defended.check(one)
    defended.check_network(network, shape)
    simulation = Simulation(
        one, defended, network, samples[None].numpy(), targets[None].numpy(), seed
    )
    update, prefix = decoded(defended, simulation.run().update), prefix_of(model)
    precision = {name: value.dtype for name, value in trained_parameters(network).items()}
    return {prefix + name: value.to(precision[name]) for name, value in update.items()}


def decoded(defense: DefenseSpec, sent: Mapping[str, Encoded]) -> dict[str, Tensor]:
    """Return what the server decodes of one victim's update of one round, by parameter."""
    with np.errstate(over="ignore", invalid="ignore"):
        values = {name: torch.from_numpy(each.decode())[0, 0] for name, each in sent.items()}
    for name, value in values.items():
        if not value.isfinite().all():
            raise IncompatibleError(
                f"defense {defense}: values of {name} exceed the range of {value.dtype}; "
                f"{defense.remedy or 'scale the update'}"
            )
    return values


@own_modes()
def batch_norm_statistics(model: nn.Module, inputs: ArrayLike) -> Tensor:
    """Compute the statistics that a client's samples have in batch normalisation layers.

    They are the grant ``batch_norm_statistics`` of `gleak.attack`. A client that sends the running
    statistics of its network after a step in training mode reveals them: they have moved from the
    broadcast ones towards these, by the layer's momentum.

    Args:
        model: network with the broadcast parameters; it is not changed.
        inputs: samples with values in [0, 1], Shape (N, *shape).

    Returns:
        Means and variances of the channels of all layers in the order in which they run,
        Shape (2, K).

    Raises:
        ArtifactError: invalid samples.
        IncompatibleError: the model does not accept the samples.

    Example:
        >>> import gleak, torch
        >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.BatchNorm1d(2))
        >>> gleak.batch_norm_statistics(model, torch.tensor([[0.0, 1.0], [0.5, 1.0]]))
        tensor([[0.2500, 1.0000],
                [0.0625, 0.0000]])
    """
    samples, network = checked_inputs(inputs), prepared_copy(model)
    count_logits(network, tuple(samples.shape[1:]))
    return torch.from_numpy(batch_statistics(network, samples[None].numpy())[0])


@with_client()
@own_modes()
def defend(
    spec: str | DefenseSpec,
    gradients: G,
    *,
    seed: SupportsIndex = 0,
    client: ClientLike = "fedsgd",
    memory: Memory | None = None,
) -> G:
    """Apply a client's defence to its update.

    Args:
        spec: defence, such as ``"gaussian+std=1e-3"`` or ``"topk+keep=0.1"`` (see ``gleak list
            defense``), or its spec object. Defences that need the client's samples are applied by
            `gleak.compute_update`.
        gradients: update by name of the parameter, or in the order of ``model.parameters()``:
            tensors or arrays of any real type, on any device. Empty ones are sent as they are.
        seed: seed of the defence's random numbers, not negative; equal to the workflow's for its
            first victim.
        client: how it trained; see `gleak.attack`. Of a client with ``sends=weights`` the values
            are differences of weights, and numbers in the unit of a gradient (``unit=gradient``)
            are converted.
        memory: values that were not sent in earlier rounds, changed in place (``threshold``); None
            in the first round.

    Returns:
        What the server decodes, in a container of the same kind; integers in single precision.

    Raises:
        SpecError: an unknown client, defence or field, or a value of another type or out of range.
        ArtifactError: values that are no tensors, not finite, or parameters; a memory of another
            update.
        IncompatibleError: the defence needs the client's samples, keeps no values in the memory
            that is given, or makes values infinite.

    Example:
        >>> import gleak, torch
        >>> gleak.defend("topk+keep=0.5", {"bias": torch.tensor([1.0, -3.0, 2.0, 0.5])})
        {'bias': tensor([ 0., -3.,  2.,  0.])}
        >>> gleak.defend("quantize+bits=2", [torch.tensor([-1.0, 0.2, 0.7, 1.0])])
        [tensor([-1.,  0.,  1.,  1.])]
    """
    defense: DefenseSpec = as_spec("defense", spec)
    if defense.needs_samples:
        raise IncompatibleError(
            f"defense {defense} needs the client's samples; apply it where the update is computed: "
            f"gleak.compute_update(model, inputs, labels, defense={str(defense)!r})"
        )
    one = client_of(client)
    given: Gradients = list(gradients) if isinstance(gradients, Iterator) else gradients
    values = tensors.update_tensors(given)
    kept = {} if memory is None else memory
    if not isinstance(kept, dict):
        raise ArtifactError(
            f"memory is a {type(memory).__name__}; give an empty dict in the first round, and the "
            "same in later ones"
        )
    for name, unsent in kept.items():
        expected = None if name not in values else tuple(values[name].shape)
        shape = tuple(tensors.tensor_of(f"memory: {name}", unsent).shape)
        if shape != expected:
            raise ArtifactError(
                f"memory: {name} has shape {shape}, but in this update {expected}; give each "
                "client and each network a memory of its own"
            )
    stream = Streams(one, 1, checked_seed(seed)).draw("defense", 0, 0, 0)
    rows = {name: value[None] for name, value in values.items()}
    sent = protect(defense.rescaled(one.protocol.update_scale), rows, stream, kept)
    if memory is not None and not kept and any(value.numel() for value in values.values()):
        raise IncompatibleError(
            f"defense {defense} keeps no values for later rounds; leave memory out"
        )
    return tensors.like(given, decoded(defense, sent))
