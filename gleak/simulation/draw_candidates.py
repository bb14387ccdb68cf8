"""Stage that draws candidates of membership inference: samples of the victims, and others.

It writes ``granted/candidates.h5`` for attacks, and ``members.h5``, which tells the victims'
samples from the others, for scoring alone.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gleak.artifacts.dataset import Dataset
from gleak.artifacts.membership import FEWEST, CandidateSamples, Members, digests_of
from gleak.artifacts.private import UNKNOWN, Private
from gleak.core.errors import IncompatibleError
from gleak.runtime.seeding import stream

REFERENCES = 256


def draw_candidates(
    dataset_path: Path,
    private_path: Path,
    folder: Path,
    *,
    split: str,
    of_own_classes: bool = False,
    count: int,
    seed: int,
) -> None:
    """Draw each victim's candidates and write ``granted/candidates.h5`` and ``members.h5``.

    The candidates of a victim are all samples that its steps take, and others from the same split,
    as the client draws them, up to ``count`` in all. Which classes are in a batch is therefore a
    part of what an update reveals. The others are samples that no victim has, as far as there are
    enough. A sample that equals one of the victim's is none of its others.

    The references are at most `REFERENCES` samples of the train split, drawn at random; neither
    victims' samples nor candidates, nor copies of them.

    Args:
        dataset_path: ``dataset.h5``.
        private_path: ``private.h5`` of the victims.
        folder: folder of the two files.
        split: split from which the victims' samples were drawn.
        of_own_classes: True if the others are of a victim's own classes, as for clients that draw
            their samples from a few.
        count: largest number of candidates of a victim.
        seed: of the run.

    Raises:
        IncompatibleError: the split has too few other samples of the victims' classes.
    """
    dataset, private = Dataset.read(dataset_path), Private.read(private_path)
    own = victims_samples(dataset, private, split)
    sizes = [len(known) for _, known in own]
    drawn = [
        draw_others(
            dataset, private, victim, split, count - size, seed, of_own_classes=of_own_classes
        )
        for victim, size in enumerate(sizes)
    ]
    others = _as_many_for_each(drawn, sizes, f"clients of {private.spec}", split)
    used = np.unique(np.concatenate(others))
    inputs = np.concatenate([*(samples for samples, _ in own), dataset.samples(split, used)])
    references = _draw_references(dataset, private, split, used, inputs, seed)
    labels = np.concatenate([*(known for _, known in own), dataset.labels(split)[used]])
    shuffle = stream(seed, "pool of candidates").permutation(len(labels))
    rows, member = _candidate_rows(sizes, others, used, seed)
    CandidateSamples(
        spec=private.spec,
        modality=private.modality,
        inputs=inputs[shuffle],
        labels=labels[shuffle],
        candidate=np.argsort(shuffle)[rows],
        reference_inputs=dataset.samples("train", references),
        reference_labels=dataset.train_labels[references],
    ).write(folder / "granted" / "candidates.h5")
    Members(spec=private.spec, seed=seed, member=member).write(folder / "members.h5")


def _as_many_for_each(
    others: list[np.ndarray], sizes: list[int], clients: str, split: str
) -> list[np.ndarray]:
    """Return as many others of each victim as give all victims as many candidates.

    Raises:
        IncompatibleError: there are too few.
    """
    total = min(size + len(each) for size, each in zip(sizes, others, strict=True))
    if total < FEWEST or total <= max(sizes):
        raise IncompatibleError(
            f"{clients}: a victim's {max(sizes)} samples and the others in the {split} split are "
            f"{total} candidates, fewer than {FEWEST} or without any other; choose a larger "
            "dataset, a smaller batch, or a larger number of candidates"
        )
    return [each[: total - size] for size, each in zip(sizes, others, strict=True)]


def _candidate_rows(
    sizes: list[int], others: list[np.ndarray], used: np.ndarray, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of each victim's candidates, in random order, and which are its own; (V, K).

    The rows are those of the victims' samples, one victim after the other, and of the ``used``
    positions in ascending order.
    """
    rows, member = [], []
    for victim, (size, positions) in enumerate(zip(sizes, others, strict=True)):
        own = sum(sizes[:victim]) + np.arange(size)
        every = np.concatenate([own, sum(sizes) + np.searchsorted(used, positions)])
        order = stream(seed, "order of candidates", victim).permutation(len(every))
        rows.append(every[order])
        member.append(order < size)
    return np.stack(rows), np.stack(member)


def victims_samples(
    dataset: Dataset, private: Private, split: str
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the samples and labels of each victim's update, before augmentation, without repeats.

    Of clients that are observed for several rounds, those of any of the rounds. Samples that no
    step takes (``drop_last``) are left out.
    """
    chosen = []
    for victim, labels in enumerate(private.labels):
        positions = private.indices[victim]
        known = not (positions == UNKNOWN).any()
        samples = dataset.samples(split, positions) if known else private.inputs[victim]
        used = np.arange(len(labels))
        if private.rounds is not None:
            used = np.unique(private.rounds[victim])
        digests = digests_of(samples)
        first = {digests[place]: place for place in used[::-1]}
        once = np.array(sorted(first.values()))
        chosen.append((samples[once], labels[once]))
    return chosen


def draw_others(
    dataset: Dataset,
    private: Private,
    victim: int,
    split: str,
    count: int,
    seed: int,
    *,
    of_own_classes: bool,
) -> np.ndarray:
    """Draw at most ``count`` positions in a split of samples that a victim does not have."""
    labels = dataset.labels(split)
    taken = np.zeros(len(labels), dtype=bool)
    taken[private.indices[private.indices != UNKNOWN]] = True
    order = stream(seed, "others", victim).permutation(len(labels))
    order = order[np.argsort(taken[order], kind="stable")]
    order = order[~np.isin(order, private.indices[victim])]
    if of_own_classes:
        order = order[np.isin(labels[order], private.labels[victim])]
    return _first_unlike(
        dataset, split, order, victims_samples(dataset, private, split)[victim][0], count
    )


def _first_unlike(
    dataset: Dataset, split: str, order: np.ndarray, known: np.ndarray, count: int
) -> np.ndarray:
    """Return the first positions, at most ``count``, of samples unlike known ones and each other.

    Args:
        dataset: with the samples.
        split: of the dataset.
        order: positions in the split, Shape (M).
        known: samples, Shape (K, *shape).
        count: largest number of positions.
    """
    seen = {*digests_of(known)}
    kept: list[int] = []
    for position in order:
        if len(kept) >= count:
            break
        (digest,) = digests_of(dataset.samples(split, position[None]))
        if digest not in seen:
            seen.add(digest)
            kept.append(int(position))
    return np.array(kept, dtype=int)


def _draw_references(
    dataset: Dataset, private: Private, split: str, others: np.ndarray, known: np.ndarray, seed: int
) -> np.ndarray:
    free = np.arange(len(dataset.train_labels))
    if split == "train":
        free = np.setdiff1d(free, np.union1d(private.indices, others))
    order = stream(seed, "references").permutation(free)
    return _first_unlike(dataset, "train", order, known, REFERENCES)
