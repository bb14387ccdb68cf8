"""Which samples each client holds."""

from __future__ import annotations

import numpy as np

from gleak.clients.base import ClientSpec
from gleak.core.errors import IncompatibleError
from gleak.runtime.seeding import stream


def draw_batches(client: ClientSpec, labels: np.ndarray, seed: int) -> np.ndarray:
    """Positions of every victim's samples in the split.

    A victim's batch does not depend on how many victims there are. As long as the split lasts no
    sample is held by two victims, but for those that `ClientSpec.repeats` gives the same batch. If
    random samples are of some classes alone (`ClientSpec.classes`), each victim draws on its own,
    and victims may share some. Unique labels are a random choice of classes as they are.

    Args:
        client: says how many and which (`ClientSpec.labels`, `ClientSpec.classes`).
        labels: Shape (M), of the split; enough of them (see `gleak.clients.base.check_batch`).
        seed: of the run.

    Returns:
        Shape (V, N).

    Raises:
        IncompatibleError: a victim's classes have too few samples for a batch.
    """
    different = range(client.victims // client.repeats)
    batches = np.stack([_batch(client, labels, number, seed) for number in different])
    return np.repeat(batches, client.repeats, axis=0)


def _batch(client: ClientSpec, labels: np.ndarray, victim: int, seed: int) -> np.ndarray:
    """Positions of one victim's samples; Shape (N)."""
    if client.labels == "unique":
        return _unique_batch(labels, client.batch_size, victim, seed)
    if client.classes is None:
        return _random_batch(labels, client.batch_size, victim, seed)
    return _batch_of_classes(client, labels, victim, seed)


def _random_batch(labels: np.ndarray, size: int, victim: int, seed: int) -> np.ndarray:
    """The victim's slice of a shuffled split; a new shuffle when the split is used up."""
    per_shuffle = len(labels) // size
    shuffle, position = divmod(victim, per_shuffle)
    order = stream(seed, "batches", shuffle).permutation(len(labels))
    return order[position * size : (position + 1) * size]


def _batch_of_classes(client: ClientSpec, labels: np.ndarray, victim: int, seed: int) -> np.ndarray:
    """Random samples of random classes."""
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
    """Random classes, and of each the victim's next sample in that class's shuffled order."""
    chosen = []
    for label in _shuffled_classes(labels, victim, seed)[:size]:
        members = np.flatnonzero(labels == label)
        order = stream(seed, "members", int(label)).permutation(members)
        chosen.append(order[victim % len(order)])
    return np.array(chosen)


def _shuffled_classes(labels: np.ndarray, victim: int, seed: int) -> np.ndarray:
    """All classes, in the victim's own order."""
    return stream(seed, "classes", victim).permutation(np.unique(labels))
