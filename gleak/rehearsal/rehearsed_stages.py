"""Stages of a cell on a virtual GPU: what each computes on a GPU, once.

Not rehearsed are stages that only use the CPU: datasets, crafting, the part of a defence that acts
on the values sent, scores, tables and figures.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from gleak.artifacts.encodings import Encoded
from gleak.attacks.run_attack import rehearse
from gleak.defenses.base import DefenseSpec
from gleak.defenses.sending import compute_update
from gleak.knowledge.base import Pretraining, TrainedSpec
from gleak.knowledge.train_knowledge import run_steps
from gleak.models.differentiation import differentiable_kernels
from gleak.models.parameters import trained_parameters
from gleak.rehearsal.placeholders import (
    blank_dataset,
    blank_network,
    blank_observation,
    blank_samples,
)
from gleak.rehearsal.single_steps import SingleSteps
from gleak.runtime.seeding import torch_stream
from gleak.runtime.virtual_gpu import DEVICE
from gleak.simulation.victims import split_among_clients
from gleak.studies.cell import Cell
from gleak.training.base import InitialisedSpec

SMALL_SIDE = 3
"""Length of the sides of the parameters with which the encoding of a defence is tried."""


def rehearse_model(cell: Cell, classes: int) -> None:
    """Build the network of a cell and compute the logits of a few samples."""
    blank_network(cell.model, cell.dataset.shape, classes)


def rehearse_training(cell: Cell, classes: int) -> None:
    """Take one step of the training; captured parameters need none."""
    if isinstance(cell.training, InitialisedSpec):
        network = blank_network(cell.model, cell.dataset.shape, classes)
        dataset = blank_dataset(cell.dataset, classes)
        cell.training.rehearse(network, dataset, SingleSteps().part())


def rehearse_knowledge(pretraining: Pretraining, classes: int) -> None:
    """Take one step of the training of knowledge; pretrained knowledge is built."""
    spec, shape = pretraining.knowledge, pretraining.dataset.shape
    if not isinstance(spec, TrainedSpec):
        blank_knowledge(pretraining, classes)
        return
    with DEVICE:
        trainer = spec.trainer(shape, classes)
    dataset = blank_dataset(pretraining.dataset, classes)
    run_steps(spec, trainer, dataset, 0, SingleSteps().part())


def blank_knowledge(pretraining: Pretraining, classes: int) -> nn.Module:
    """Build a network of the attacker, without gradients."""
    with DEVICE:
        network = pretraining.knowledge.build(pretraining.dataset.shape, classes)
    return network.eval().requires_grad_(False)


def rehearse_client(cell: Cell, classes: int) -> None:
    """Compute the update of one client of one victim, with the samples of all on the GPU."""
    client, defense, shape = cell.client, cell.defense, cell.dataset.shape
    network = client.run(blank_network(cell.model, shape, classes))
    everyone = blank_samples(client.victims * client.batch_size, shape)
    inputs, labels = (each[: client.batch_size] for each in everyone)
    positions = client.round_positions(torch_stream(0, "members", 0))[0].to(DEVICE)
    share = split_among_clients(positions, defense.clients_per_update)[0]
    samples = inputs[share], labels[share]
    with differentiable_kernels(network):
        compute_update(
            defense.rescaled(client.protocol.update_scale),
            partial(client.compute, network, *samples, defense.local_gradient()),
            network,
            *samples,
            torch_stream(0, "client", 0),
        )


def rehearse_attack(cell: Cell, classes: int, verified_methods: dict[str, Any]) -> None:
    """Run the attack on all victims, with one step of every search.

    Args:
        cell: with an attack.
        classes: number of outputs.
        verified_methods: see `gleak.attacks.observation.Observation`.
    """
    network = blank_network(cell.model, cell.dataset.shape, classes)
    observation = blank_observation(
        cell,
        network,
        classes,
        encoded_parameters(cell.defense, network),
        secret=_secret(cell, network, classes),
        knowledge={
            each.knowledge.name: blank_knowledge(each, classes) for each in cell.pretrainings
        },
        verified_methods=verified_methods,
    )
    rehearse(cell.attack, observation)


def _secret(cell: Cell, network: nn.Module, classes: int) -> Mapping[str, np.ndarray]:
    """Return the secret of the crafting, if the attack reads it."""
    if cell.attack.crafting is None:
        return {}
    secret: Mapping[str, np.ndarray]
    secret = cell.crafting.craft_network(network, cell.dataset.shape, classes, 0)
    return secret


def encoded_parameters(defense: DefenseSpec, network: nn.Module) -> dict[str, Encoded]:
    """Return small tensors as a defence encodes them, by parameter; of one client and round.

    Args:
        defense: applied to small tensors of the parameters' number of dimensions.
        network: of the clients.
    """
    small = {
        name: torch.rand(1, *(min(side, SMALL_SIDE) for side in value.shape))
        for name, value in trained_parameters(network).items()
    }
    if defense.clients_per_update > 1:
        return {}
    return defense.protect(small, torch_stream(0, "defense"), {})
