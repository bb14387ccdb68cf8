"""Recorded runs: scores of finished grids with their conditions, small enough for the repository.

The folder of a study and scale contains ``<grid>.csv.gz``, the table of each recorded grid,
``conditions.yaml``, and pictures of reconstructions, which cannot be drawn from scores.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from pydantic import BaseModel, ConfigDict

from gleak.artifacts.atomic import atomic
from gleak.core.errors import ArtifactError
from gleak.core.settings import Scale
from gleak.core.yaml_input import load_mapping, read_model
from gleak.figures.statistics import refusals
from gleak.metrics.score_table import read_scores
from gleak.runtime import provenance
from gleak.studies.refusals import levels_of
from gleak.studies.stage_files import (
    Made,
    StudyPart,
    model_of,
    parameters_of,
    reconstruction_of,
    table_of,
)
from gleak.studies.stages import path_of

if TYPE_CHECKING:
    import pandas as pd

    from gleak.studies.cell import Cell
    from gleak.studies.grid import Grid
    from gleak.studies.study import Study

SUFFIX = ".csv.gz"
CONDITIONS = "conditions.yaml"
COLOURS = 256
LAST_LEVEL = {"training": model_of, "crafting": parameters_of, "attack": reconstruction_of}
"""Last level of a cell -> the file that its last job makes."""
COMPRESSION = {"method": "gzip", "mtime": 0}
"""Of tables; without a time, so that equal tables give equal bytes."""


class Conditions(BaseModel):
    """Conditions under which the scores of a grid were computed.

    Args:
        commits: of gleak's source; several if the run was continued after a change.
        versions: of gleak and torch.
        devices: that computed the last level of each cell.
        threads: of a job.
        begun, ended: times of the first and the last job, in UTC.
        cells: number of cells that were computed.
        cpu_hours: of the jobs of the last level, without the jobs that they depend on.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    commits: list[str]
    versions: list[str]
    devices: list[str]
    threads: list[int]
    begun: str
    ended: str
    cells: int
    cpu_hours: float


def finished_grids(study: Study, scale: Scale, results: Path) -> list[str]:
    """Return the grids of a study whose tables a run has made."""
    part = StudyPart(study, scale)
    return [grid for grid in study.grids if path_of(table_of(part, grid), results).is_file()]


def record_grid(study: Study, grid: str, scale: Scale, results: Path, folder: Path) -> Conditions:
    """Copy the table of a finished grid into a record, with its conditions.

    Args:
        study: the study.
        grid: name of the grid.
        scale: of the run.
        results: ``results_dir`` of the run.
        folder: of the record.

    Raises:
        ArtifactError: the grid has no table; names the command that makes it.
        DamagedError: the table or a provenance file cannot be read.
    """
    table = path_of(table_of(StudyPart(study, scale), grid), results)
    if not table.is_file():
        command = f"snakemake {shlex.quote(str(table))}"
        raise ArtifactError(f"{table}: not computed yet; run: {command}")
    scores = read_scores([table])
    conditions = conditions_of(_computed(study.grid(grid, scale), scores), results)
    folder.mkdir(parents=True, exist_ok=True)
    with atomic(folder / f"{grid}{SUFFIX}") as temporary:
        scores.to_csv(
            temporary,
            index=False,
            float_format="%.6g",
            lineterminator="\n",
            compression=COMPRESSION,
        )
    _write_conditions({**read_conditions(folder), grid: conditions}, folder)
    return conditions


def _computed(grid: Grid, scores: pd.DataFrame) -> list[Cell]:
    """Return the cells of a grid that no job has refused."""
    refused = set(refusals(scores).index)
    return [cell for cell in grid.cells if tuple(levels_of(cell).values()) not in refused]


def conditions_of(cells: Sequence[Cell], results: Path) -> Conditions:
    """Summarise the provenance of the last level of each cell; at least one."""
    made = [LAST_LEVEL[cell.end](cell) for cell in cells]
    facts = [provenance.load(path_of(file, results).parent) for file in made]
    times = sorted(str(fact["time"]) for fact in facts)
    return Conditions(
        commits=_distinct(fact["commit"] for fact in facts),
        versions=_distinct(f"gleak {fact['gleak']}, torch {fact['torch']}" for fact in facts),
        devices=_distinct(fact["device"] for fact in facts),
        threads=_distinct(fact["threads"] for fact in facts),
        begun=times[0],
        ended=times[-1],
        cells=len(cells),
        cpu_hours=round(sum(fact["cpu_seconds"] for fact in facts) / 3600, 3),
    )


def _distinct(values: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys(values))


def read_conditions(folder: Path) -> dict[str, Conditions]:
    """Return the conditions of each recorded grid; none if there is no record.

    Raises:
        SpecError: the file is not valid; names it.
    """
    path = folder / CONDITIONS
    if not path.is_file():
        return {}
    content = load_mapping(path, "conditions of a record", "grids")
    return {
        grid: read_model(Conditions, facts, f"{path}: {grid}") for grid, facts in content.items()
    }


def _write_conditions(conditions: Mapping[str, Conditions], folder: Path) -> None:
    content = {grid: facts.model_dump() for grid, facts in sorted(conditions.items())}
    with atomic(folder / CONDITIONS) as temporary:
        temporary.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")


def record_picture(study: Study, figure: str, scale: Scale, results: Path, folder: Path) -> bool:
    """Copy the picture of a figure of reconstructions into a record, in 256 colours.

    Returns:
        False if the run has not drawn it, or if it is drawn from scores.
    """
    from PIL import Image

    part = StudyPart(study, scale, "figure", figure)
    drawn = path_of(Made("draw", "bitmap", part), results)
    if study.figure(figure).needs != "reconstructions" or not drawn.is_file():
        return False
    folder.mkdir(parents=True, exist_ok=True)
    with Image.open(drawn) as picture, atomic(folder / drawn.name) as temporary:
        picture.convert("RGB").quantize(COLOURS).save(temporary, format="PNG", optimize=True)
    return True
