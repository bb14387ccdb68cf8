"""Batches of the victims."""

from __future__ import annotations

import numpy as np

from gleak.clients.base import ClientSpec
from gleak.core.errors import IncompatibleError
from gleak.runtime.seeding import stream


def draw_batches(client: ClientSpec, labels: np.ndarray, seed: int) -> np.ndarray:
    """Draw the positions of every victim's samples in the split.

    A victim's batch does not depend on the number of victims. Batches are disjoint until the split
    is used up, except those of victims with the same batch (`ClientSpec.repeats`). If samples are
    drawn from a number of classes (`ClientSpec.classes`), each victim draws independently, and
    batches may overlap. With unique labels the classes of a batch are random.

    Args:
        client: gives the number and kind of batches (`ClientSpec.labels`, `ClientSpec.classes`).
        labels: labels of the split, Shape (M); see `gleak.clients.base.check_batch`.
        seed: seed of the run.

    Returns:
        Shape (V, N).

    Raises:
        IncompatibleError: a victim's classes have too few samples for a batch.
    """
    different = range(client.victims // client.repeats)
    batches = np.stack([_batch(client, labels, number, seed) for number in different])
    return np.repeat(batches, client.repeats, axis=0)


def _batch(client: ClientSpec, labels: np.ndarray, victim: int, seed: int) -> np.ndarray:
    """Draw the positions of one victim's samples; Shape (N)."""
    if client.labels == "unique":
        return _unique_batch(labels, client.batch_size, victim, seed)
    if client.classes is None:
        return _random_batch(labels, client.batch_size, victim, seed)
    return _batch_of_classes(client, labels, victim, seed)


def _random_batch(labels: np.ndarray, size: int, victim: int, seed: int) -> np.ndarray:
    """Return the victim's slice of the shuffled split, shuffled again when it is used up."""
    per_shuffle = len(labels) // size
    shuffle, position = divmod(victim, per_shuffle)
    order = stream(seed, "batches", shuffle).permutation(len(labels))
    return order[position * size : (position + 1) * size]


def _batch_of_classes(client: ClientSpec, labels: np.ndarray, victim: int, seed: int) -> np.ndarray:
    """Draw random samples of random classes."""
    chosen = _shuffled_classes(labels, victim, seed)[: client.classes]
    members = np.flatnonzero(np.isin(labels, chosen))
    if len(members) < client.batch_size:
        raise IncompatibleError(
            f"client {client}: victim {victim} draws classes {sorted(chosen.tolist())}, which have "
            f"{len(members)} samples in the {client.split} split, fewer than "
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
    """Return all classes in a random order for each victim."""
    return stream(seed, "classes", victim).permutation(np.unique(labels))
