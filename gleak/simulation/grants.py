"""Grants: knowledge that an attacker may have besides the update, ``granted/*.h5``.

All grants are written for every cell; an attack only reads those that its spec names.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gleak.artifacts.dataset import Dataset
from gleak.artifacts.private import Private
from gleak.artifacts.update import Granted
from gleak.runtime.seeding import stream

AUXILIARY = 64
READ_AT_ONCE = 1024


def write_truth(
    dataset: Dataset,
    private: Private,
    statistics: np.ndarray,
    free: np.ndarray,
    folder: Path,
    seed: int,
) -> None:
    """Write ``private.h5``, and ``granted/*.h5`` computed from it; see `make_grants`."""
    for granted in make_grants(dataset, private, statistics, free, seed):
        granted.write(folder / "granted" / f"{granted.grant}.h5")
    private.write(folder / "private.h5")


def make_grants(
    dataset: Dataset, private: Private, statistics: np.ndarray, free: np.ndarray, seed: int
) -> list[Granted]:
    """Compute all grants for victims with these samples.

    - ``labels`` of the victim's samples, ascending, and ``embeddings``, the inputs of the broadcast
      model's first dense layer, by ascending norm, so that the order reveals nothing; Shape (V, N)
      and (V, N, E), with E zero if these inputs are the samples or there is no such layer.
    - ``mean_input``: of all training samples, or mid-grey if there are none; Shape (1, *shape).
    - ``class_sample``: for each label a training sample of that class, drawn for each victim;
      Shape (V, N, *shape), or (V, 0, *shape) if a class has no free sample.
    - ``auxiliary_inputs``, ``auxiliary_labels``: at most `AUXILIARY` training samples, from all
      classes in turn; Shape (1, M, *shape) and (1, M).
    - ``batch_norm_statistics``: of the victim's samples (`gleak.models.batch_norm`), which a server
      reads off the running statistics that a client sends; Shape (V, 2, K).

    Samples of the victims are never granted, but they are included in the mean. ``free`` are the
    positions of the training samples that no victim has.
    """
    same_class = _draw_of_classes(dataset.train_labels, free, private.labels, seed)
    auxiliary = _draw_auxiliary(dataset.train_labels, free, seed)
    by_norm = np.empty((*private.labels.shape, 0), dtype=np.float32)
    if private.embeddings is not None:
        order = np.linalg.norm(private.embeddings, axis=2).argsort(axis=1)
        by_norm = np.take_along_axis(private.embeddings, order[..., None], axis=1)
    for_each = {
        "labels": np.sort(private.labels, axis=1),
        "embeddings": by_norm,
        "class_sample": dataset.samples("train", same_class),
        "batch_norm_statistics": statistics,
    }
    for_all = {
        "mean_input": _mean_input(dataset)[None],
        "auxiliary_inputs": dataset.samples("train", auxiliary)[None],
        "auxiliary_labels": dataset.train_labels[auxiliary][None],
    }
    return [
        Granted(spec=private.spec, grant=grant, shared=grant in for_all, values=values)
        for grant, values in {**for_each, **for_all}.items()
    ]


def free_positions(dataset: Dataset, private: Private, split: str) -> np.ndarray:
    """Return the positions in the train split of the samples that no victim of a split has.

    Copies of a victim's sample, which a folder of images may have in both splits, are left out.
    """
    stored = {"train": dataset.train_inputs, "test": dataset.test_inputs}
    taken = {sample.tobytes() for sample in stored[split][np.unique(private.indices)]}
    free = [sample.tobytes() not in taken for sample in dataset.train_inputs]
    return np.flatnonzero(free)


def _draw_of_classes(
    labels: np.ndarray, free: np.ndarray, wanted: np.ndarray, seed: int
) -> np.ndarray:
    """Draw positions of free samples with each victim's sorted labels; (V, N) or (V, 0)."""
    members = {label: free[labels[free] == label] for label in np.unique(wanted)}
    if not all(map(len, members.values())):
        return np.empty((len(wanted), 0), dtype=int)
    drawn = []
    for victim, victim_labels in enumerate(wanted):
        random = stream(seed, "class sample", victim)
        # samples are repeated only if there are too few
        counts = zip(*np.unique(victim_labels, return_counts=True), strict=True)
        samples = [np.resize(random.permutation(members[label]), count) for label, count in counts]
        drawn.append(np.concatenate(samples))
    return np.stack(drawn)


def _draw_auxiliary(labels: np.ndarray, free: np.ndarray, seed: int) -> np.ndarray:
    """Draw positions of free samples from all classes in turn."""
    random = stream(seed, "auxiliary")
    by_class = free[np.lexsort((random.random(len(free)), labels[free]))]
    _, first, counts = np.unique(labels[by_class], return_index=True, return_counts=True)
    turns = np.arange(len(free)) - np.repeat(first, counts)
    return by_class[np.lexsort((random.random(len(free)), turns))[:AUXILIARY]]


def _mean_input(dataset: Dataset) -> np.ndarray:
    """Compute the mean training sample, converting few samples to floats at a time."""
    count = len(dataset.train_labels)
    if not count:
        return np.full(dataset.shape, 0.5, dtype=np.float32)
    total = np.zeros(dataset.shape)
    for start in range(0, count, READ_AT_ONCE):
        chunk = slice(start, start + READ_AT_ONCE)
        total += dataset.samples("train", chunk).sum(0, dtype=np.float64)
    return (total / count).astype(np.float32)
