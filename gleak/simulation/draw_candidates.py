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
    dataset_path: Path, private_path: Path, folder: Path, *, split: str, count: int, seed: int
) -> None:
    """Draw each victim's candidates and write ``granted/candidates.h5`` and ``members.h5``.

    The candidates of a victim are all samples of its update, and others from the same split with
    the same shares of classes, so that labels reveal nothing, up to ``count`` in all. The others
    are samples that no victim has, as far as there are enough. A sample that equals one of the
    victim's is none of its others.

    The references are at most `REFERENCES` samples of the train split, drawn at random; neither
    victims' samples nor candidates.

    Args:
        dataset_path: ``dataset.h5``.
        private_path: ``private.h5`` of the victims.
        folder: folder of the two files.
        split: split from which the victims' samples were drawn.
        count: largest number of candidates of a victim.
        seed: of the run.

    Raises:
        IncompatibleError: the split has too few other samples of the victims' classes.
    """
    dataset, private = Dataset.read(dataset_path), Private.read(private_path)
    own = victims_samples(dataset, private, split)
    labels = dataset.labels(split)
    others = [
        draw_others(dataset, private, victim, split, count - len(own[victim][1]), seed)
        for victim in range(len(own))
    ]
    sizes = [len(known) for _, known in own]
    total = min(size + len(each) for size, each in zip(sizes, others, strict=True))
    if total < FEWEST or total <= max(sizes):
        raise IncompatibleError(
            f"clients of {private.spec}: a victim's {max(sizes)} samples and the others with the "
            f"same shares of classes in the {split} split are {total} candidates, fewer than "
            f"{FEWEST} or without any other; choose a larger dataset, a smaller batch, or a larger "
            "number of candidates"
        )
    others = [each[: total - size] for size, each in zip(sizes, others, strict=True)]
    used = np.unique(np.concatenate(others))
    inputs = np.concatenate([*(samples for samples, _ in own), dataset.samples(split, used)])
    pooled = np.concatenate([*(known for _, known in own), labels[used]])
    first_other = len(pooled) - len(used)
    shuffle = stream(seed, "pool of candidates").permutation(len(pooled))
    place = np.argsort(shuffle)
    candidate, member = [], []
    for victim, positions in enumerate(others):
        first, size = sum(sizes[:victim]), sizes[victim]
        rows = np.concatenate(
            [first + np.arange(size), first_other + np.searchsorted(used, positions)]
        )
        order = stream(seed, "order of candidates", victim).permutation(total)
        candidate.append(place[rows[order]])
        member.append(order < size)
    references = _draw_references(dataset, private, split, used, seed)
    CandidateSamples(
        spec=private.spec,
        seed=seed,
        modality=private.modality,
        inputs=inputs[shuffle],
        labels=pooled[shuffle],
        candidate=np.stack(candidate),
        reference_inputs=dataset.samples("train", references),
        reference_labels=dataset.train_labels[references],
    ).write(folder / "granted" / "candidates.h5")
    Members(spec=private.spec, seed=seed, member=np.stack(member)).write(folder / "members.h5")


def victims_samples(
    dataset: Dataset, private: Private, split: str
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the samples and labels of each victim's update, before augmentation, without repeats.

    Of clients that are observed for several rounds, those of any of the rounds.
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
    dataset: Dataset, private: Private, victim: int, split: str, count: int, seed: int
) -> np.ndarray:
    """Draw at most ``count`` other samples of a split with a victim's shares of classes.

    Returns:
        Positions in the split, in an order of which every beginning has nearly these shares.
    """
    labels = dataset.labels(split)
    taken = np.zeros(len(labels), dtype=bool)
    taken[private.indices[private.indices != UNKNOWN]] = True
    order = stream(seed, "others", victim).permutation(len(labels))
    order = order[np.argsort(taken[order], kind="stable")]
    classes, wanted = np.unique(private.labels[victim], return_counts=True)
    own = private.indices[victim]
    order = order[np.isin(labels[order], classes) & ~np.isin(order, own)]
    known = {*digests_of(victims_samples(dataset, private, split)[victim][0])}
    kept: list[int] = []
    ranks: list[float] = []
    for label, share in zip(classes, wanted, strict=True):
        places, number = order[labels[order] == label], 0
        for position in places[: -(-max(count, 0) * share // len(own)) + 1]:
            digest = digests_of(dataset.samples(split, position[None]))[0]
            if digest not in known:
                known.add(digest)
                number += 1
                kept.append(int(position))
                ranks.append((number - 0.5) / share)
    by_share = np.argsort(ranks, kind="stable")
    last = min(_highest_rank(ranks, labels[kept], classes), default=0.0)
    complete = [place for place in by_share if ranks[place] <= last]
    return np.array(kept, dtype=int)[complete[: max(count, 0)]]


def _highest_rank(ranks: list[float], labels: np.ndarray, classes: np.ndarray) -> list[float]:
    """Return the rank of the last sample of each class, 0 for one without samples."""
    values = np.array(ranks)
    return [float(values[labels == label].max(initial=0.0)) for label in classes]


def _draw_references(
    dataset: Dataset, private: Private, split: str, others: np.ndarray, seed: int
) -> np.ndarray:
    free = np.arange(len(dataset.train_labels))
    if split == "train":
        free = np.setdiff1d(free, np.union1d(private.indices, others))
    return stream(seed, "references").permutation(free)[:REFERENCES]
