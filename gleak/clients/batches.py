"""Which samples each client holds."""

from __future__ import annotations

import numpy as np

from gleak.clients.base import ClientSpec
from gleak.runtime.seeding import stream


def draw_batches(client: ClientSpec, labels: np.ndarray, seed: int) -> np.ndarray:
    """Positions of every victim's samples in the split.

    A victim's batch does not depend on how many victims there are. As long as the split lasts no
    sample is held by two victims, but for those that `ClientSpec.repeats` gives the same batch.

    Args:
        client: says how many and which (`ClientSpec.labels`).
        labels: Shape (M), of the split; enough of them (see `gleak.clients.base.check_batch`).
        seed: of the run.

    Returns:
        Shape (V, N).
    """
    draw = _unique_batch if client.labels == "unique" else _random_batch
    different = range(client.victims // client.repeats)
    batches = np.stack([draw(labels, client.batch_size, number, seed) for number in different])
    return np.repeat(batches, client.repeats, axis=0)


def _random_batch(labels: np.ndarray, size: int, victim: int, seed: int) -> np.ndarray:
    """The victim's slice of a shuffled split; a new shuffle when the split is used up."""
    per_shuffle = len(labels) // size
    shuffle, position = divmod(victim, per_shuffle)
    order = stream(seed, "batches", shuffle).permutation(len(labels))
    return order[position * size : (position + 1) * size]


def _unique_batch(labels: np.ndarray, size: int, victim: int, seed: int) -> np.ndarray:
    """Random classes, and of each the victim's next sample in that class's shuffled order."""
    classes = stream(seed, "classes", victim).permutation(np.unique(labels))[:size]
    chosen = []
    for label in classes:
        members = np.flatnonzero(labels == label)
        order = stream(seed, "members", int(label)).permutation(members)
        chosen.append(order[victim % len(order)])
    return np.array(chosen)
