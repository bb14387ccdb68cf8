"""Stages that write the artifacts of a cell from a capture."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import numpy as np

from gleak.artifacts.dataset import Dataset
from gleak.artifacts.model import Model
from gleak.artifacts.private import Private
from gleak.artifacts.protocol import Protocol
from gleak.artifacts.update import Update
from gleak.captures.locations import IMPORT_AGAIN, check_stated_defense
from gleak.core.errors import ArtifactError
from gleak.knowledge.loading import fingerprints
from gleak.models.batch_norm import batch_statistics
from gleak.models.broadcast import load_network
from gleak.models.layer_search import true_embeddings
from gleak.runtime.device import choose_device
from gleak.simulation.grants import write_truth
from gleak.simulation.victims import measure_drift
from gleak.studies.cell import Cell
from gleak.training.base import test_accuracy


def take_captured_model(cell: Cell, captured: Path, dataset_path: Path, output: Path) -> None:
    """Write ``model.h5`` of a cell up to the training: captured parameters, their test accuracy."""
    model, dataset = Model.read(captured), Dataset.read(dataset_path)
    if model.spec != str(cell):
        raise ArtifactError(
            f"{captured}: captured for {model.spec}, not for {cell}; {IMPORT_AGAIN}"
        )
    if model.classes != dataset.classes:
        raise ArtifactError(
            f"{captured}: has {model.classes} classes, but {dataset.spec} now has "
            f"{dataset.classes}; import it again"
        )
    accuracy = test_accuracy(load_network(model, str(captured)), dataset)
    replace(model, test_accuracy=np.array(accuracy, dtype=np.float64)).write(output)


def take_captured_update(cell: Cell, captured: Path, output: Path) -> None:
    """Write ``update.h5`` of a cell up to the defence: the captured updates."""
    update, client = Update.read(captured), cell.client
    _check_field(client.victims, update.victims, "victims", captured)
    check_stated_defense(cell, captured)
    protocol = cell.defense.protocol_of(client)
    for field in fields(Protocol):
        expected = getattr(protocol, field.name)
        _check_field(expected, getattr(update.protocol, field.name), field.name, captured)
    replace(update, spec=str(cell)).write(output)


def take_captured_truth(
    cell: Cell,
    captured: Path,
    dataset_path: Path,
    parameters_path: Path,
    folder: Path,
    *,
    seed: int,
    device: str = "auto",
) -> None:
    """Write ``private.h5`` and ``granted/*.h5`` of captured clients, of a cell up to the defence.

    Training samples that equal a sample of the clients are not granted.
    """
    private, dataset = Private.read(captured), Dataset.read(dataset_path)
    victims, samples = private.labels.shape
    _check_field(cell.client.victims, victims, "victims", captured)
    _check_field(cell.client.batch_size, samples, "batch_size", captured)
    network = load_network(Model.read(parameters_path), str(parameters_path))
    network = cell.client.run(network.to(choose_device(device)))
    truth, clients_per_update = (private.inputs, private.labels), cell.defense.clients_per_update
    complete = replace(
        private,
        spec=str(cell),
        seed=seed,
        feature_groups=dataset.feature_groups,
        embeddings=true_embeddings(network, private.inputs),
        drift=measure_drift(cell.client, network, *truth, seed, clients_per_update),
    )
    statistics = batch_statistics(network, private.inputs)
    own = fingerprints(private.inputs.reshape(-1, *dataset.shape))
    others = np.flatnonzero(~np.isin(fingerprints(dataset.train_inputs), own))
    write_truth(dataset, complete, statistics, others, folder, seed)


def _check_field(expected: object, actual: object, field: str, captured: Path) -> None:
    """Raise an `ArtifactError` if a field of a capture differs from the cell's."""
    if expected != actual:
        raise ArtifactError(
            f"{captured}: {field} is {actual}, but {expected} in the path; {IMPORT_AGAIN}"
        )
