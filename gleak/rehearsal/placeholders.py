"""Datasets, networks and observations of true shapes without values, on a virtual GPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gleak.artifacts.dataset import Dataset
from gleak.artifacts.encodings import Encoded
from gleak.attacks.matching.code_cells import cells_of
from gleak.attacks.observation import Observation
from gleak.attacks.run_attack import parameters_read
from gleak.core.errors import IncompatibleError
from gleak.data.base import DatasetSpec
from gleak.models.base import ModelSpec
from gleak.models.batch_norm import batch_norm_passes
from gleak.models.broadcast import prepare_layers
from gleak.models.examination import count_logits
from gleak.models.layer_search import first_biased_input, first_dense_layer
from gleak.models.parameters import trained_parameters
from gleak.rehearsal.single_steps import SingleSteps
from gleak.runtime.virtual_gpu import DEVICE
from gleak.simulation.grants import AUXILIARY
from gleak.studies.cell import Cell
from gleak.studies.estimate import ASSUMED_SAMPLES

TEST_SAMPLES = 8


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
    """Build a network on the virtual GPU, in evaluation mode, and check its logits.

    Raises:
        IncompatibleError: it does not accept such samples, or has another number of logits.
    """
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
    cell: Cell,
    network: nn.Module,
    classes: int,
    encoded: Mapping[str, Encoded],
    *,
    secret: Mapping[str, np.ndarray],
    knowledge: Mapping[str, nn.Module],
    verified_methods: dict[str, Any],
) -> Observation:
    """Return the observation of all victims of a cell.

    Args:
        cell: with an attack.
        network: as broadcast; its parameters are frozen by this function.
        classes: number of outputs.
        encoded: by parameter, small values of one client in the encoding of the defence.
        secret: see `Observation`.
        knowledge: see `Observation`.
        verified_methods: see `Observation`.

    Raises:
        IncompatibleError: the attack does not support the network.
    """
    client, shape = cell.client, cell.dataset.shape
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
        **{"local_steps": 1, "local_lr": 1.0, **client.protocol},
        content=client.content,
        broadcast={name: stored(client.rounds, *v.shape) for name, v in several.items()},
        granted=granted,
        victim_ids=np.arange(client.victims),
        seed=0,
        spec=str(cell),
        secret=secret,
        knowledge=knowledge,
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
