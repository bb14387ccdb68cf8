"""What is checked of studies before any job, beyond what their files say; and what is left out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from gleak.core.errors import DataError, error_context
from gleak.core.settings import SCALES, Scale
from gleak.data.base import DatasetSpec
from gleak.data.download import DownloadableDataset
from gleak.experiments.cell import Cell
from gleak.experiments.own_models import check_own_model, is_own
from gleak.experiments.study import Study


def examine_study(study: Study, data_dir: Path) -> Study:
    """The study with users' own networks examined at every scale, those of searches too.

    Raises:
        SpecError, IncompatibleError: see `gleak.experiments.study.Study.examined`, or a search
            cannot be run.
    """
    for scale in SCALES:
        study = study.examined(scale, data_dir)
        for name in study.searches:
            with error_context(f"study {study.name!r}, search {name!r}, scale {scale!r}"):
                check_own_model(study.search(name, scale).cell, data_dir)
    return study


def check_data(study: Study, scale: Scale, data_dir: Path) -> None:
    """Refuse datasets of a scale that are not in the folder of data and not to be downloaded.

    Raises:
        DataError: names the first.
    """
    for dataset in _datasets(study, scale):
        dataset.check_data(data_dir)


def describe_checks(study: Study, scale: Scale, data_dir: Path) -> list[str]:
    """A line for each own network that was built, each dataset in the data folder, each refusal.

    Args:
        study: examined at the scale, see `gleak.experiments.study.Study.examined`.
        scale: one of `SCALES`.
        data_dir: where the user keeps data.
    """
    refused = [
        f"grid {name}: n/a: {refusal}"
        for name, refusals in study.refused(scale).items()
        for refusal in refusals
    ]
    read = [dataset for dataset in _datasets(study, scale) if dataset.reads_data_dir]
    return [
        *dict.fromkeys(_describe_network(cell, data_dir) for cell in _own(study, scale)),
        *dict.fromkeys(_describe_data(dataset, data_dir) for dataset in read),
        *refused,
    ]


def describe_every_scale(study: Study, data_dir: Path) -> list[str]:
    """The lines of `describe_checks` at every scale, each with the scales that it is about."""
    scales: dict[str, list[str]] = {}
    for scale in SCALES:
        for line in describe_checks(study, scale, data_dir):
            scales.setdefault(line, []).append(scale)
    return [f"{', '.join(found)}: {line}" for line, found in scales.items()]


def _cells(study: Study, scale: Scale) -> Iterator[Cell]:
    for scales in study.grids.values():
        yield from scales[scale].cells
    for searches in study.searches.values():
        yield searches[scale].cell


def _own(study: Study, scale: Scale) -> list[Cell]:
    return [cell for cell in _cells(study, scale) if is_own(cell)]


def _datasets(study: Study, scale: Scale) -> Iterator[DatasetSpec]:
    """Every dataset that a study needs at a scale, public ones too."""
    for cell in _cells(study, scale):
        yield cell.dataset
        yield from (each.dataset for each in (*cell.pretrainings, *cell.judges))
    for figure in study.figures.values():
        yield from (each.dataset for each in figure.trainings(scale))


def _describe_network(cell: Cell, data_dir: Path) -> str:
    classes = cell.dataset.classes_in(data_dir)
    where = f"model {cell.model} for {cell.dataset}"
    if classes is None:
        return f"{where}: not built, as the number of classes is told by data that are not there"
    return f"{where}: built for {classes} classes, and examined"


def _describe_data(dataset: DatasetSpec, data_dir: Path) -> str:
    try:
        dataset.check_data(data_dir)
    except DataError:
        return f"dataset {dataset}: not in {data_dir}"
    if isinstance(dataset, DownloadableDataset) and not dataset.root(data_dir).is_dir():
        return f"dataset {dataset}: no folder {dataset.root(data_dir)}; downloaded when needed"
    return f"dataset {dataset}: found in {data_dir}"
