"""The stage ``prepare_dataset``, which writes ``dataset.h5``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from gleak.data.base import DatasetSpec


def prepare_dataset(spec: DatasetSpec, data_dir: Path, seed: int, output: Path) -> None:
    """Read or generate the samples of a dataset and write them.

    Args:
        spec: the dataset.
        data_dir: folder with the user's image folders and tables.
        seed: of the run.
        output: path of the ``dataset.h5`` to write.

    Raises:
        DataError: there are no usable data in ``data_dir``.
        ArtifactError: ``output`` cannot be written.
    """
    dataset = spec.load(data_dir, seed)
    replace(dataset, spec=str(spec), seed=seed).write(output)
