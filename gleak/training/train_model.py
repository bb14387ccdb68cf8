"""Stage that writes ``model.h5``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from gleak.artifacts.dataset import Dataset
from gleak.artifacts.model import Model
from gleak.models.base import ModelSpec
from gleak.models.broadcast import with_state
from gleak.runtime.checkpointing import FILE, Journal, origin_of
from gleak.runtime.device import choose_device, device_name
from gleak.runtime.seeding import drawing_from, torch_stream
from gleak.training.base import InitialisedSpec


def train_model(
    model: ModelSpec,
    training: InitialisedSpec,
    dataset_path: Path,
    output: Path,
    *,
    seed: int,
    device: str = "auto",
) -> dict[str, float]:
    """Build a model, train it on ``dataset.h5`` and write ``model.h5``.

    A user's network begins with the values that its function gives it, if ``init=default``.

    An interrupted training resumes from ``checkpoint.h5`` in the folder of the output, with the
    same result as without interruption.

    Returns:
        See `gleak.runtime.checkpointing.Journal.earlier`.
    """
    dataset = Dataset.read(dataset_path)
    with drawing_from(torch_stream(training.own_seed(seed), "construction")):
        network = model.build(dataset.shape, dataset.classes)
    used = choose_device(device)
    network.to(used)
    origin = origin_of(__name__, [model, training], [dataset_path], seed)
    artifact = Model(
        spec=f"{dataset.spec}/{model}/{training}",
        model=str(model),
        modality=dataset.modality,
        classes=dataset.classes,
        input_shape=np.array(dataset.shape),
        parameters={},
        buffers={},
        train_loss=np.zeros(0),
        test_accuracy=np.zeros(0),
    )
    with Journal(output.with_name(FILE), origin, device_name(used)) as journal:
        history = training.train(network, dataset, seed, journal, initialised=model.user_defined)
        replace(
            with_state(artifact, network),
            train_loss=np.array(history.train_loss, dtype=np.float64),
            test_accuracy=np.array(history.test_accuracy, dtype=np.float64),
        ).write(output)
    return journal.earlier
