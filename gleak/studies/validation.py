"""Checks of studies before any job that need the user's data or networks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from gleak.core.errors import DataError, error_context
from gleak.core.settings import Scale, Settings
from gleak.data.base import DatasetSpec
from gleak.data.download import DownloadableDataset
from gleak.studies.cell import Cell
from gleak.studies.own_models import check_own_model, is_own
from gleak.studies.study import Study


def examine_study(study: Study, data_dir: Path) -> Study:
    """Return the study without the cells that users' networks do not fit, at every scale.

    Raises:
        SpecError, IncompatibleError: as for `gleak.studies.study.Study.examined`, or if a
            search cannot be run.
    """
    for scale in study.scales:
        study = study.examined(scale, data_dir)
        for name in study.searches:
            with error_context(f"study {study.name!r}, search {name!r}, scale {scale!r}"):
                check_own_model(study.search(name, scale).cell, data_dir)
    return study


def check_data(study: Study, settings: Settings) -> None:
    """Raise a `DataError` if a dataset of the scale is missing and may not be downloaded."""
    for dataset in _datasets(study, settings.scale):
        dataset.check_data(settings.data_dir, download=settings.download)


def describe_checks(study: Study, scale: Scale, data_dir: Path) -> list[str]:
    """Return a line for each user-defined network, dataset of the data folder and refusal.

    The study is the result of `gleak.studies.study.Study.examined` at the scale.
    """
    refused = [
        f"grid {name}: n/a: {refusal}"
        for name, refusals in study.refused(scale).items()
        for refusal in refusals
    ]
    own = [cell for cell in _cells(study, scale) if is_own(cell)]
    read = [dataset for dataset in _datasets(study, scale) if dataset.reads_data_dir]
    return [
        *dict.fromkeys(_describe_network(cell, data_dir) for cell in own),
        *dict.fromkeys(_describe_data(dataset, data_dir) for dataset in read),
        *refused,
    ]


def describe_every_scale(study: Study, data_dir: Path) -> list[str]:
    """Describe checks and searches that are not adopted, each line with the scales it applies to.

    See `describe_checks` and `gleak.studies.study.Study.substitutes`.
    """
    scales: dict[str, list[str]] = {}
    for scale in study.scales:
        for line in [*describe_checks(study, scale, data_dir), *study.substitutes(scale)]:
            scales.setdefault(line, []).append(scale)
    return [f"{', '.join(names)}: {line}" for line, names in scales.items()]


def _cells(study: Study, scale: Scale) -> Iterator[Cell]:
    for scales in study.at(scale).grids.values():
        yield from scales[scale].cells
    for searches in study.searches.values():
        yield searches[scale].cell


def _datasets(study: Study, scale: Scale) -> Iterator[DatasetSpec]:
    """Yield every dataset that a study needs at a scale, including public ones."""
    for cell in _cells(study, scale):
        yield cell.dataset
        yield from (each.dataset for each in (*cell.pretrainings, *cell.evaluators))
    for figure in study.at(scale).figures.values():
        yield from (each.dataset for each in figure.trainings(scale))


def _describe_network(cell: Cell, data_dir: Path) -> str:
    classes = cell.dataset.classes_in(data_dir)
    where = f"model {cell.model} for {cell.dataset}"
    if classes is None:
        return f"{where}: not built, as the number of classes depends on data that are missing"
    return f"{where}: built for {classes} classes, and examined"


def _describe_data(dataset: DatasetSpec, data_dir: Path) -> str:
    try:
        dataset.check_data(data_dir)
    except DataError:
        fetched = isinstance(dataset, DownloadableDataset) and data_dir.is_dir()
        hint = "; downloaded with --config download=true" if fetched else ""
        return f"dataset {dataset}: not in {data_dir}{hint}"
    return f"dataset {dataset}: found in {data_dir}"
