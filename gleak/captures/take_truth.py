"""The stage that makes ``private.h5`` and ``granted/*.h5`` of a capture."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gleak.artifacts.dataset import Dataset
from gleak.artifacts.model import Model
from gleak.artifacts.private import Private
from gleak.captures.folder import check_said
from gleak.knowledge.loading import fingerprints
from gleak.models.broadcast import load_network
from gleak.models.layer_search import true_embeddings
from gleak.runtime.device import choose_device
from gleak.simulation.drift import measure_drift
from gleak.simulation.grants import write_truth

if TYPE_CHECKING:
    from gleak.experiments.cell import Cell


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
    """Write ``private.h5`` and ``granted/*.h5`` of captured clients, as of simulated ones.

    Training samples that equal one of the clients' are not granted.

    Args:
        cell: up to the defence.
        captured: the capture's ``private.h5``.
        dataset_path: ``dataset.h5``.
        parameters_path: ``model.h5``, as broadcast.
        folder: where the files go.
        seed: of the run.
        device: "auto", "cpu" or "cuda".

    Raises:
        ArtifactError: the truth is of another number of clients or samples than the cell says.
    """
    private, dataset = Private.read(captured), Dataset.read(dataset_path)
    victims, samples = private.labels.shape
    check_said(cell.client.victims, victims, "victims", captured)
    check_said(cell.client.batch_size, samples, "batch_size", captured)
    network = load_network(Model.read(parameters_path), str(parameters_path))
    network = network.to(choose_device(device))
    of_clients = private.inputs, private.labels
    complete = replace(
        private,
        spec=str(cell),
        seed=seed,
        feature_groups=dataset.feature_groups,
        embeddings=true_embeddings(network, private.inputs),
        drift=measure_drift(
            cell.client, network, *of_clients, seed, cell.defense.clients_per_update
        ),
    )
    write_truth(dataset, complete, _others(dataset, private), folder, seed)


def _others(dataset: Dataset, private: Private) -> np.ndarray:
    """Positions of the training samples that are none of the clients'."""
    held = fingerprints(private.inputs.reshape(-1, *dataset.shape))
    return np.flatnonzero(~np.isin(fingerprints(dataset.train_inputs), held))
