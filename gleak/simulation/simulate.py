"""Stage that writes ``update.h5``, ``granted/*.h5`` and ``private.h5``."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gleak.artifacts.dataset import Dataset
from gleak.artifacts.model import Model
from gleak.artifacts.private import Private
from gleak.artifacts.update import Update
from gleak.clients.base import ClientSpec, check_batch
from gleak.core.errors import error_context
from gleak.defenses.base import DefenseSpec
from gleak.models.batch_norm import batch_statistics
from gleak.models.broadcast import load_network
from gleak.models.layer_search import true_embeddings
from gleak.runtime.device import choose_device
from gleak.simulation.batches import draw_batches
from gleak.simulation.drift import measure_drift
from gleak.simulation.grants import free_positions, write_truth
from gleak.simulation.update_error import log_perturbation
from gleak.simulation.victims import Observed, Simulation


def simulate_clients(
    client: ClientSpec,
    defense: DefenseSpec,
    dataset_path: Path,
    parameters_path: Path,
    folder: Path,
    *,
    spec: str,
    seed: int,
    device: str = "auto",
) -> None:
    """Simulate all victims; write ``update.h5``, ``granted/*.h5`` and ``private.h5``.

    Args:
        client: batches and local training of the clients.
        defense: defence of the clients.
        dataset_path: ``dataset.h5``.
        parameters_path: ``model.h5`` or ``parameters.h5``, as broadcast.
        folder: output folder.
        spec: canonical path of the cell, written into the files.
        seed: seed of the run.
        device: "auto", "cpu" or "cuda".

    Raises:
        IncompatibleError: the dataset cannot supply the batches.
    """
    dataset = Dataset.read(dataset_path)
    split = dataset.labels(client.split)
    check_batch(client, len(split), len(np.unique(split)), dataset.spec)
    with error_context(dataset.spec):
        indices = draw_batches(client, split, seed)
    inputs, labels = dataset.samples(client.split, indices), split[indices]
    broadcast = load_network(Model.read(parameters_path), str(parameters_path))
    client.check_network(broadcast, dataset.shape)
    network = client.run(broadcast.to(choose_device(device)))
    embeddings, statistics = true_embeddings(network, inputs), batch_statistics(network, inputs)
    drift = measure_drift(client, network, inputs, labels, seed, defense.clients_per_update)
    observed = Simulation(client, defense, network, inputs, labels, seed).run()
    log_perturbation(client, defense, observed.perturbations)
    private = Private(
        spec=spec,
        seed=seed,
        modality=dataset.modality,
        inputs=inputs,
        labels=labels,
        indices=indices,
        feature_groups=dataset.feature_groups,
        embeddings=embeddings,
        rounds=observed.positions,
        drift=drift,
        noise_multipliers=observed.noise_multipliers,
        perturbation=observed.perturbations,
        sent_bytes=observed.sent_bytes,
    )
    _update_of(client, observed, spec).write(folder / "update.h5")
    free = free_positions(dataset, private, client.split)
    write_truth(dataset, private, statistics, free, folder, seed)


def _update_of(client: ClientSpec, observed: Observed, spec: str) -> Update:
    """Return the update file of a cell, with what the server knows of the clients' training."""
    return Update(
        spec=spec,
        content=client.content,
        update=observed.update,
        broadcast=observed.broadcast,
        **client.protocol,
    )
