"""The stage ``prepare_dataset``: from a spec to ``dataset.h5``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from gleak.data.base import DatasetSpec


def prepare_dataset(spec: DatasetSpec, data_dir: Path, seed: int, output: Path) -> None:
    """Read or make the samples and write them.

    Args:
        spec: which dataset.
        data_dir: where the user keeps image folders and tables.
        seed: of the run.
        output: the ``dataset.h5`` to write.

    Raises:
        DataError: nothing usable in ``data_dir``.
        ArtifactError: ``output`` cannot be written.
    """
    dataset = spec.load(data_dir, seed)
    replace(dataset, spec=str(spec), seed=seed).write(output)
