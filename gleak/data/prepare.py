"""The stage ``prepare_dataset``, which writes ``dataset.h5``."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

from gleak.core.errors import DamagedError, DataError
from gleak.data.base import DatasetSpec
from gleak.runtime.provenance import load

SOURCE = "data_dir"


def prepare_dataset(
    spec: DatasetSpec, data_dir: Path, seed: int, output: Path, *, download: bool = False
) -> None:
    """Read or generate the samples of a dataset and write them.

    Raises:
        DataError: there are no usable data in ``data_dir``, or they have another shape.
    """
    if download:
        spec.fetch(data_dir)
    dataset = spec.load(data_dir, seed)
    if dataset.shape != spec.shape:
        raise DataError(
            f"dataset {spec}: samples have shape {dataset.shape}, but its class says {spec.shape}; "
            "correct its property shape"
        )
    replace(dataset, spec=str(spec), seed=seed).write(output)


def source_facts(spec: DatasetSpec, data_dir: Path) -> dict[str, Any]:
    """Return the entry of ``provenance.json`` that names the data folder of a dataset."""
    return {SOURCE: [str(data_dir), str(data_dir.resolve())]} if spec.reads_data_dir else {}


def check_source(prepared: Path, data_dir: Path) -> None:
    """Raise if an existing ``dataset.h5`` was made from another data folder.

    The data folder is not part of the path of any result, so a changed one would silently replace
    the data of all results.
    """
    try:
        given, resolved = load(prepared.parent)[SOURCE]
    except (DamagedError, KeyError):
        return
    if str(data_dir) != given and str(data_dir.resolve()) != resolved:
        raise DataError(
            f"{prepared} was made from data_dir = {given}, but data_dir is {data_dir} now; add "
            f"--config {shlex.quote(f'data_dir={given}')}, or set another results_dir, or delete "
            f"{prepared} to make it and all results from it again"
        )
