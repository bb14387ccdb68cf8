"""What a setting may grant an attacker beside the update: ``granted/*.h5``.

Every grant is made for every cell; an attack is handed those alone that its spec names.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gleak.artifacts.dataset import Dataset
from gleak.artifacts.granted import Granted
from gleak.artifacts.private import Private
from gleak.runtime.seeding import stream

AUXILIARY = 64
MID_GREY = 0.5
READ_AT_ONCE = 1024


def write_truth(
    dataset: Dataset, private: Private, free: np.ndarray, folder: Path, seed: int
) -> None:
    """Write ``private.h5``, and ``granted/*.h5``, which are made of it.

    Args:
        dataset: where the samples come from.
        private: the victims' samples.
        free: see `make_grants`.
        folder: where they go.
        seed: of the run.
    """
    for granted in make_grants(dataset, private, free, seed):
        granted.write(folder / "granted" / f"{granted.grant}.h5")
    private.write(folder / "private.h5")


def make_grants(dataset: Dataset, private: Private, free: np.ndarray, seed: int) -> list[Granted]:
    """All grants of the victims that hold these samples.

    - ``labels``: the victim's, in ascending order, so that the order says nothing;
      Shape (V, N).
    - ``embeddings``: what the broadcast model's first dense layer is given of each of the victim's
      samples, by ascending length, so that the order says nothing more; Shape (V, N, E), or
      (V, N, 0) where that is the sample itself or there is no such layer.
    - ``mean_input``: mean of all training samples; mid-grey where there are none;
      Shape (1, *shape).
    - ``class_sample``: for each label in ``labels`` a training sample of that class, drawn by the
      victim; Shape (V, N, *shape), or (V, 0, *shape) where some class has none to grant.
    - ``auxiliary_inputs``, ``auxiliary_labels``: `AUXILIARY` training samples, the
      classes taking turns; Shape (1, M, *shape) and (1, M), where M is less if there are fewer.

    Samples that a victim holds are never granted; they only take part in the mean.

    Args:
        dataset: where the samples come from.
        private: the victims' samples.
        free: positions of the training samples that no victim holds.
        seed: of the run.
    """
    alike = _draw_of_classes(dataset.train_labels, free, private.labels, seed)
    auxiliary = _draw_auxiliary(dataset.train_labels, free, seed)
    for_each = {
        "labels": np.sort(private.labels, axis=1),
        "embeddings": _by_length(private),
        "class_sample": dataset.samples("train", alike),
    }
    for_all = {
        "mean_input": _mean_input(dataset),
        "auxiliary_inputs": dataset.samples("train", auxiliary),
        "auxiliary_labels": dataset.train_labels[auxiliary],
    }
    return [
        *(_granted(private, grant, values) for grant, values in for_each.items()),
        *(_granted(private, grant, values[None], shared=True) for grant, values in for_all.items()),
    ]


def _by_length(private: Private) -> np.ndarray:
    """Each victim's embeddings, the shortest first."""
    if private.embeddings is None:
        return np.empty((*private.labels.shape, 0), dtype=np.float32)
    order = np.linalg.norm(private.embeddings, axis=2).argsort(axis=1)
    return np.take_along_axis(private.embeddings, order[..., None], axis=1)


def _granted(private: Private, grant: str, values: np.ndarray, shared: bool = False) -> Granted:
    return Granted(spec=private.spec, grant=grant, shared=shared, values=values)


def free_positions(dataset: Dataset, private: Private, split: str) -> np.ndarray:
    """Positions in the train split of the samples that no victim holds.

    Args:
        dataset: where the samples come from.
        private: the victims' samples.
        split: the one these are from, "train" or "test".
    """
    every = np.arange(len(dataset.train_labels))
    return np.setdiff1d(every, private.indices) if split == "train" else every


def _draw_of_classes(
    labels: np.ndarray, free: np.ndarray, wanted: np.ndarray, seed: int
) -> np.ndarray:
    """Positions of free samples with every victim's labels, ascending; Shape (V, N) or (V, 0)."""
    classes = labels[free]
    members = {label: free[classes == label] for label in np.unique(wanted)}
    if not all(map(len, members.values())):
        return np.empty((len(wanted), 0), dtype=int)
    streams = [stream(seed, "class sample", victim) for victim in range(len(wanted))]
    return np.stack([_draw_like(*each, members) for each in zip(wanted, streams, strict=True)])


def _draw_like(
    labels: np.ndarray, random: np.random.Generator, members: dict[int, np.ndarray]
) -> np.ndarray:
    """A member of its class for each label, none twice as long as there are others; Shape (N)."""
    counts = zip(*np.unique(labels, return_counts=True), strict=True)
    return np.concatenate(
        [np.resize(random.permutation(members[label]), count) for label, count in counts]
    )


def _draw_auxiliary(labels: np.ndarray, free: np.ndarray, seed: int) -> np.ndarray:
    """Positions of free samples; the classes take turns until there are enough."""
    random = stream(seed, "auxiliary")
    by_class = free[np.lexsort((random.random(len(free)), labels[free]))]
    _, first, counts = np.unique(labels[by_class], return_index=True, return_counts=True)
    turns = np.arange(len(free)) - np.repeat(first, counts)
    return by_class[np.lexsort((random.random(len(free)), turns))[:AUXILIARY]]


def _mean_input(dataset: Dataset) -> np.ndarray:
    """The mean training sample, few held as floats at a time."""
    count = len(dataset.train_labels)
    if not count:
        return np.full(dataset.shape, MID_GREY, dtype=np.float32)
    total = np.zeros(dataset.shape)
    for start in range(0, count, READ_AT_ONCE):
        some = slice(start, start + READ_AT_ONCE)
        total += dataset.samples("train", some).sum(0, dtype=np.float64)
    return (total / count).astype(np.float32)
