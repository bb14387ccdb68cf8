"""The stage that makes ``model.h5``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from torch import nn

from gleak.artifacts.dataset import Dataset
from gleak.artifacts.model import Model
from gleak.models.base import ModelSpec
from gleak.models.broadcast import with_state
from gleak.runtime.device import choose_device
from gleak.runtime.seeding import drawing_from, torch_stream
from gleak.training.base import TrainingSpec


def train_model(
    model: ModelSpec,
    training: TrainingSpec,
    dataset_path: Path,
    output: Path,
    *,
    seed: int,
    device: str = "auto",
) -> None:
    """Build a model for a dataset, give it its parameters, and write it.

    Args:
        model: the architecture.
        training: how the parameters come about.
        dataset_path: ``dataset.h5``.
        output: ``model.h5``.
        seed: of the run.
        device: "auto", "cpu" or "cuda".
    """
    dataset = Dataset.read(dataset_path)
    network = _construct(model, dataset, seed).to(choose_device(device))
    history = training.train(network, dataset, seed)
    artifact = Model(
        spec=f"{dataset.spec}/{model}/{training}",
        seed=seed,
        model=str(model),
        modality=dataset.modality,
        classes=dataset.classes,
        input_shape=np.array(dataset.shape),
        parameters={},
        buffers={},
        train_loss=np.array(history.train_loss, dtype=np.float64),
        test_accuracy=np.array(history.test_accuracy, dtype=np.float64),
    )
    with_state(artifact, network).write(output)


def _construct(model: ModelSpec, dataset: Dataset, seed: int) -> nn.Module:
    """The network; what a user's constructor draws comes from the run's own stream."""
    with drawing_from(torch_stream(seed, "construction")):
        return model.build(dataset.shape, dataset.classes)
