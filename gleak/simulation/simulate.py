"""Stage that writes ``update.h5``, ``granted/*.h5`` and ``private.h5``."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np

from gleak.artifacts.dataset import Dataset
from gleak.artifacts.model import Model
from gleak.artifacts.private import Private
from gleak.artifacts.update import Update
from gleak.clients.base import ClientSpec, check_batch
from gleak.core.errors import IncompatibleError, error_context
from gleak.defenses.base import DefenseSpec
from gleak.models.batch_norm import batch_statistics
from gleak.models.broadcast import load_network
from gleak.models.layer_search import true_embeddings
from gleak.runtime.device import choose_device
from gleak.runtime.seeding import stream
from gleak.simulation.grants import free_positions, write_truth
from gleak.simulation.victims import (
    Simulation,
    clients_of_samples,
    epoch_change,
    fed_inputs,
    measure_drift,
)

MAX_PERTURBATION = 1.0
log = logging.getLogger(__name__)


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

    The parameters are ``model.h5`` or ``parameters.h5``, as broadcast; the spec is the canonical
    path of the cell, written into the files.

    Raises:
        IncompatibleError: the dataset cannot supply the batches.
    """
    dataset = Dataset.read(dataset_path)
    split = dataset.labels(client.split)
    check_batch(client, len(split), len(np.unique(split)), dataset.spec)
    with error_context(dataset.spec):
        indices = draw_batches(client, split, seed)
    samples, labels = dataset.samples(client.split, indices), split[indices]
    inputs = fed_inputs(client, samples, seed, defense.clients_per_update)
    sent_model = Model.read(parameters_path)
    broadcast = load_network(sent_model, str(parameters_path))
    client.check_network(broadcast, dataset.shape)
    network = client.run(broadcast.to(choose_device(device)))
    statistics = batch_statistics(network, inputs)
    embeddings, drift, own = None, None, sent_model.client_parameters or {}
    if not own:
        embeddings = true_embeddings(network, inputs)
        drift = measure_drift(client, network, samples, labels, seed, defense.clients_per_update)
    observed = Simulation(client, defense, network, samples, labels, seed, dataset, own).run()
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
        epoch_change=epoch_change(observed),
        noise_multipliers=observed.noise_multipliers,
        perturbation=observed.perturbations,
        clients=clients_of_samples(labels, defense.clients_per_update),
        sent_bytes=observed.sent_bytes,
    )
    sent = Update(
        spec=spec,
        protocol=defense.protocol_of(client),
        update=observed.update,
        broadcast=observed.broadcast,
    )
    sent.write(folder / "update.h5")
    free = free_positions(dataset, private, client.split)
    write_truth(dataset, private, statistics, free, folder, seed)


def draw_batches(client: ClientSpec, labels: np.ndarray, seed: int) -> np.ndarray:
    """Draw the positions of every victim's samples in the split.

    A victim's batch depends on its number, from `ClientSpec.first` on, not on that of victims.
    Batches are disjoint until the split is used up, except those of victims with the same batch
    (`ClientSpec.repeats`). If samples are drawn from a number of classes (`ClientSpec.classes`),
    each victim draws independently, and batches may overlap. With unique labels the classes of a
    batch are random, and batches are disjoint for as many victims as the smallest class has
    samples. Shapes: labels of the split (M), result (V, N).

    Raises:
        IncompatibleError: a victim's classes have too few samples for a batch.
    """
    batches = []
    for victim in range(client.first, client.first + client.batches):
        if client.labels == "unique":
            batches.append(_unique_batch(labels, client.batch_size, victim, seed))
        elif client.classes is not None:
            batches.append(_batch_of_classes(client, labels, victim, seed))
        else:
            # The victim's slice of the shuffled split, shuffled again when it is used up.
            shuffle, position = divmod(victim, len(labels) // client.batch_size)
            order = stream(seed, "batches", shuffle).permutation(len(labels))
            batches.append(order[position * client.batch_size :][: client.batch_size])
    return np.repeat(np.stack(batches), client.repeats, axis=0)


def _batch_of_classes(client: ClientSpec, labels: np.ndarray, victim: int, seed: int) -> np.ndarray:
    classes = _shuffled_classes(labels, victim, seed)[: client.classes]
    members = np.flatnonzero(np.isin(labels, classes))
    if len(members) < client.batch_size:
        raise IncompatibleError(
            f"client {client}: victim {victim} draws classes {sorted(classes.tolist())}, which "
            f"have {len(members)} samples in the {client.split} split, fewer than "
            f"batch_size={client.batch_size}; choose more classes or a smaller batch"
        )
    random = stream(seed, "batches of classes", victim)
    return random.choice(members, client.batch_size, replace=False)


def _unique_batch(labels: np.ndarray, size: int, victim: int, seed: int) -> np.ndarray:
    """Draw random classes, and for each the victim's next sample in the shuffled class."""
    chosen = []
    for label in _shuffled_classes(labels, victim, seed)[:size]:
        members = np.flatnonzero(labels == label)
        order = stream(seed, "members", int(label)).permutation(members)
        chosen.append(order[victim % len(order)])
    return np.array(chosen)


def _shuffled_classes(labels: np.ndarray, victim: int, seed: int) -> np.ndarray:
    return stream(seed, "classes", victim).permutation(np.unique(labels))


def log_perturbation(client: ClientSpec, defense: DefenseSpec, perturbations: np.ndarray) -> None:
    """Log the mean of perturbations, (V, R); warn if noise dominates or depends on the content."""
    mean, worst = perturbations.mean(), perturbations.max()
    log.info("defense %s: mean relative perturbation of the update %.3g", defense, mean)
    if defense.remedy and worst > MAX_PERTURBATION:
        log.warning(
            "client %s, defense %s: noise and clipping change the update by up to %.3g times its "
            "norm, so noise dominates: %s",
            client,
            defense,
            worst,
            defense.remedy,
        )
    scale = abs(client.protocol.update_scale)
    if defense.takes_differences:
        if client.protocol.content == "gradient":
            log.warning(
                "client %s, defense %s: the framework applies the defence to a difference of "
                "weights, and here it is applied to a gradient; choose a client with sends=weights",
                client,
                defense,
            )
    elif defense.scale_dependent and scale != 1:
        log.warning(
            "client %s, defense %s: the defence has parameters in the unit of the values sent, a "
            "difference of weights of %.3g times the norm of the mean gradient; relative to the "
            "update they are %.3g times as large as with sends=gradient: if they are meant for "
            "gradients, write unit=gradient, or choose sends=gradient",
            client,
            defense,
            scale,
            1 / scale,
        )
