"""Stages of a cell on a virtual GPU: what each computes on a GPU, once.

Not rehearsed are stages that only use the CPU: datasets, crafting, the part of a defence that acts
on the values sent, scores, tables and figures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from gleak.artifacts.dataset import Dataset
from gleak.artifacts.encodings import Encoded
from gleak.attacks.matching.quantisation_cells import cells_of
from gleak.attacks.observation import Observation
from gleak.attacks.run_attack import parameters_read, rehearse
from gleak.core.errors import IncompatibleError
from gleak.data.base import DatasetSpec
from gleak.defenses.base import DefenseSpec
from gleak.defenses.sending import compute_update
from gleak.knowledge.base import Pretraining, TrainedSpec
from gleak.knowledge.train_knowledge import run_steps
from gleak.models.base import ModelSpec
from gleak.models.batch_norm import batch_norm_passes
from gleak.models.broadcast import prepare_layers
from gleak.models.differentiation import differentiable_kernels
from gleak.models.examination import count_logits
from gleak.models.layer_search import first_biased_input, first_dense_layer
from gleak.models.parameters import trained_parameters
from gleak.runtime.checkpointing import Journal, Part, State
from gleak.runtime.seeding import torch_stream
from gleak.runtime.virtual_gpu import DEVICE
from gleak.simulation.grants import AUXILIARY
from gleak.simulation.victims import split_among_clients
from gleak.studies.cell import Cell
from gleak.studies.estimate import ASSUMED_SAMPLES
from gleak.training.base import InitialisedSpec

TEST_SAMPLES = 8


class SingleSteps(Journal):
    """Journal whose parts take one step; snapshots would take most of a rehearsal's memory."""

    keeps_images: ClassVar[bool] = False

    def part(self, name: str = "") -> Part:
        return SingleStep(self, name)

    def keep(self, prefix: str, state: State) -> None: ...


class SingleStep(Part):
    """Part of one step, whatever its work says about the end, since that depends on values."""

    def steps(self, unfinished: Callable[[], bool], state: Callable[[], State]) -> Iterator[None]:
        yield


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
    """Run the attack on all victims, with one step of every search."""
    network = blank_network(cell.model, cell.dataset.shape, classes)
    rehearse(cell.attack, blank_observation(cell, network, classes, verified_methods))


def encoded_parameters(defense: DefenseSpec, network: nn.Module) -> dict[str, Encoded]:
    """Return tensors of at most three values a side as a defence encodes them, by parameter."""
    small = {
        name: torch.rand(1, *(min(side, 3) for side in value.shape))
        for name, value in trained_parameters(network).items()
    }
    if defense.clients_per_update > 1:
        return {}
    return defense.protect(small, torch_stream(0, "defense"), {})


def blank_dataset(spec: DatasetSpec, classes: int) -> Dataset:
    """Return a dataset of the true number of training samples and few test samples, all zero."""
    samples = spec.sizes["train"] if spec.sizes else ASSUMED_SAMPLES
    kind = np.uint8 if spec.modality == "image" else np.float32
    blank = np.zeros((), kind)
    return Dataset(
        spec=str(spec),
        modality=spec.modality,
        train_inputs=np.broadcast_to(blank, (samples, *spec.shape)),
        train_labels=np.arange(samples) % classes,
        test_inputs=np.broadcast_to(blank, (TEST_SAMPLES, *spec.shape)),
        test_labels=np.arange(TEST_SAMPLES) % classes,
        class_names=np.array([str(number) for number in range(classes)]),
    )


def blank_network(spec: ModelSpec, shape: tuple[int, ...], classes: int) -> nn.Module:
    """Build a network on the virtual GPU, in evaluation mode, and check its number of logits."""
    with DEVICE:
        network = prepare_layers(spec.build(shape, classes))
    if (found := count_logits(network, shape)) != classes:
        raise IncompatibleError(f"model {spec} has {found} logits for {classes} classes")
    return network


def blank_samples(count: int, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Return samples, Shape (count, *shape), and their labels on the virtual GPU."""
    inputs = torch.empty(count, *shape, device=DEVICE)
    return inputs, torch.empty(count, dtype=torch.long, device=DEVICE)


def blank_observation(
    cell: Cell, network: nn.Module, classes: int, verified_methods: dict[str, Any]
) -> Observation:
    """Return the observation of all victims of a cell; freezes the parameters of the network."""
    client, shape = cell.client, cell.dataset.shape
    encoded = encoded_parameters(cell.defense, network)
    secret: Mapping[str, np.ndarray] = {}
    if cell.attack.crafting is not None:
        secret = cell.crafting.craft_network(network, shape, classes, 0)
    only = parameters_read(network, cell.attack.reads, shape)
    trained = trained_parameters(network)
    read = {name: value for name, value in trained.items() if only is None or name in only}
    granted = _grants(cell, network)
    network.requires_grad_(False)
    several = trained if client.rounds > 1 else {}
    stored = _in_host_memory if several else _blank
    update = {name: stored(client.victims, client.rounds, *v.shape) for name, v in read.items()}
    masked = {name for name, value in encoded.items() if value.sent() is not None}
    codes = cells_of({name: encoded[name] for name in read if name in encoded}, DEVICE)
    first = torch.zeros(client.victims, client.rounds, dtype=torch.long, device=DEVICE)
    return Observation(
        update=update,
        sent={name: stored(*update[name].shape, dtype=torch.bool) for name in masked & set(read)},
        cells={name: code.at((first, first)) for name, code in codes.items()},
        model=client.run(network),
        modality=cell.dataset.modality,
        input_shape=shape,
        classes=classes,
        protocol=client.protocol,
        broadcast={name: stored(client.rounds, *v.shape) for name, v in several.items()},
        granted=granted,
        victim_ids=np.arange(client.victims),
        seed=0,
        spec=str(cell),
        secret=secret,
        knowledge={one.knowledge.name: blank_knowledge(one, classes) for one in cell.pretrainings},
        journal=SingleSteps(),
        verified_methods=verified_methods,
    )


def embedding_size(network: nn.Module, shape: tuple[int, ...]) -> int:
    """Return the number of inputs of the first dense layer; 0 if these are the samples."""
    layer = first_dense_layer(network, shape)
    entry = first_biased_input(network, blank_samples(1, shape)[0])
    return 0 if layer is None or layer.takes_samples or not entry else entry.embeddings.shape[1]


def _grants(cell: Cell, network: nn.Module) -> dict[str, Tensor]:
    """Return the grants of an attack; shared ones are stored once (`gleak.simulation.grants`)."""
    wanted, shape = cell.attack.grants, cell.dataset.shape
    victims, samples = cell.client.victims, cell.client.batch_size
    embeddings = embedding_size(network, shape) if "embeddings" in wanted else 0
    channels = sum(layer.num_features for layer in batch_norm_passes(network, shape))
    makers = {
        "labels": lambda: _blank(victims, samples).long(),
        "embeddings": lambda: _blank(victims, samples, embeddings),
        "class_sample": lambda: _blank(victims, samples, *shape),
        "mean_input": lambda: _blank(1, *shape).expand(victims, *shape),
        "auxiliary_inputs": lambda: _blank(1, AUXILIARY, *shape).expand(victims, -1, *shape),
        "auxiliary_labels": lambda: _blank(1, AUXILIARY).long().expand(victims, -1),
        "batch_norm_statistics": lambda: _blank(victims, 2, channels),
    }
    return {grant: make() for grant, make in makers.items() if grant in wanted}


def _blank(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.empty(shape, dtype=dtype, device=DEVICE)


def _in_host_memory(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return zeros on the CPU that take no memory."""
    return torch.zeros((), dtype=dtype).expand(shape)
