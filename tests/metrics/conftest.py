"""Tiny truths, reconstructions and comparisons."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from torch import Tensor

from gleak.artifacts.dataset import Dataset
from gleak.artifacts.private import Private
from gleak.artifacts.reconstruction import Candidate, Reconstruction
from gleak.metrics.base import Comparison

LEVELS = {
    "dataset": "digits",
    "model": "lenet+activation=tanh",
    "training": "untrained",
    "crafting": "honest",
    "client": "fedsgd+batch_size=3",
    "defense": "none",
    "attack": "dlg",
    "grants": "labels",
}
SHAPE = (2, 3, 1, 12, 12)


@pytest.fixture
def columns() -> dict[str, str]:
    return dict(LEVELS)


@pytest.fixture
def truth() -> Private:
    """Two victims of three grey images of 12 x 12 pixels, one label twice."""
    inputs = np.random.default_rng(0).random(SHAPE, dtype=np.float32)
    labels = np.array([[4, 1, 4], [0, 1, 2]])
    return Private(inputs=inputs, labels=labels, indices=np.arange(6).reshape(2, 3))


@pytest.fixture
def make_reconstruction(truth: Private) -> Callable[..., Reconstruction]:
    """The truth as a reconstruction, with any field changed."""

    def make(**fields: object) -> Reconstruction:
        values = {
            "modality": truth.modality,
            "inputs": truth.inputs,
            "labels": truth.labels,
            "converged": np.array([True, True]),
        }
        return Reconstruction(**{**values, **fields})

    return make


class Brightest:
    """A tagger whose tags are the places of the three brightest values."""

    def tags(self, images: Tensor) -> Tensor:
        """Tags of images, as from a tag classifier."""
        return images.flatten(1).topk(3).indices


def dataset_of(labels: np.ndarray, shape: tuple[int, ...]) -> Dataset:
    """Random samples, two of each label in both splits."""
    twice = np.repeat(labels, 2)
    samples = np.random.default_rng(5).integers(0, 256, (2, len(twice), *shape), dtype=np.uint8)
    return Dataset(
        train_inputs=samples[0],
        train_labels=twice,
        test_inputs=samples[1],
        test_labels=twice,
        class_names=np.array([str(label) for label in np.unique(labels)], dtype=object),
    )


@pytest.fixture
def make_comparison(
    make_reconstruction: Callable[..., Reconstruction],
) -> Callable[..., Comparison]:
    """A truth and an estimate of it, labels equal, by an attack that keeps every record.

    The columns of a table are categories, two columns to each. Embeddings are the samples
    themselves; the other sign of a sample is one minus it. The defence is `dp`. Clients take local
    steps, each victim's further off than the one before it, and send every sample in two rounds,
    which the attack has paired; each sample is that of another client of a sum. Tags are the
    places of the brightest values. The estimate was chosen among two candidates; the other one is
    grey. The dataset has four other samples of each label.
    """

    def make(truth: np.ndarray, estimate: np.ndarray) -> Comparison:
        victims, samples = truth.shape[:2]
        labels = np.arange(victims * samples).reshape(victims, samples)
        books = {name: np.arange(victims) + 1 for name in ("iterations", "evaluations", "restarts")}
        return Comparison(
            private=Private(
                inputs=truth,
                labels=labels,
                indices=labels,
                modality="image" if truth.ndim == 5 else "tabular",
                feature_groups=None if truth.ndim == 5 else np.arange(truth.shape[-1]) // 2,
                embeddings=truth.reshape(victims, samples, -1),
                drift=np.arange(victims) / 8,
                epoch_change=np.arange(victims) / 4,
                perturbation=np.arange(2 * victims).reshape(victims, 2) / 8,
                sent_bytes=1000.0 + np.arange(2 * victims).reshape(victims, 2),
                rounds=np.tile(np.arange(samples), (victims, 2))[:, :, None],
                clients=np.tile(np.arange(samples), (victims, 1)),
            ),
            estimate=estimate,
            estimate_labels=labels,
            reconstruction=make_reconstruction(
                inputs=estimate,
                labels=labels,
                converged=np.ones(victims, dtype=bool),
                objective=np.full(victims, 0.25),
                mirrored=1 - estimate,
                embeddings=estimate.reshape(victims, samples, -1),
                averaged_count=np.ones((victims, samples), dtype=int),
                rounds=np.tile(np.arange(2 * samples).reshape(2, samples).T, (victims, 1, 1)),
                clients=np.tile(np.arange(samples), (victims, 1)),
                **books,
            ).with_candidates(
                [
                    [
                        Candidate(attack="cpl", reason="", inputs=own, labels=named, chosen=True),
                        Candidate(
                            attack="blind", reason="", inputs=np.full_like(own, 0.5), labels=named
                        ),
                    ]
                    for own, named in zip(estimate, labels, strict=True)
                ]
            ),
            provenance={"cpu_seconds": 12.0, "peak_memory_mb": 345.0},
            levels={**LEVELS, "defense": "dp+sigma=1"},
            evaluators={"tagger": Brightest()},
            dataset=dataset_of(labels.ravel(), truth.shape[2:]),
        )

    return make
