"""The stage that makes ``model.h5`` of a capture."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gleak.artifacts.dataset import Dataset
from gleak.artifacts.model import Model
from gleak.captures.folder import AGAIN
from gleak.core.errors import ArtifactError
from gleak.models.broadcast import load_network
from gleak.training.central_training import test_accuracy

if TYPE_CHECKING:
    from gleak.experiments.cell import Cell


def take_captured_model(cell: Cell, captured: Path, dataset_path: Path, output: Path) -> None:
    """Write ``model.h5``: the captured parameters, with their test accuracy.

    Args:
        cell: up to the training.
        captured: the capture's ``model.h5``.
        dataset_path: ``dataset.h5``.
        output: ``model.h5``.

    Raises:
        ArtifactError: the capture is of another dataset or model.
    """
    model, dataset = Model.read(captured), Dataset.read(dataset_path)
    if model.spec != str(cell):
        raise ArtifactError(f"{captured}: is of {model.spec}, not of {cell}; {AGAIN}")
    if model.classes != dataset.classes:
        raise ArtifactError(
            f"{captured}: has {model.classes} classes, but {dataset.spec} has {dataset.classes} by "
            "now; import it again"
        )
    accuracy = test_accuracy(load_network(model, str(captured)), dataset)
    replace(model, test_accuracy=np.array(accuracy, dtype=np.float64)).write(output)
