"""Entry point of the workflow for drawing one figure of a study."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from gleak.core.errors import ArtifactError
from gleak.figures.published import empty_published, read_published
from gleak.figures.statistics import CELL, join_cells, refusals
from gleak.metrics.score_table import empty_scores, read_scores
from gleak.studies.axis_labels import AxisLabels
from gleak.studies.cell import Cell, Paths, levels_of
from gleak.studies.figure_spec import FigureData, Shown
from gleak.studies.grid import Grid
from gleak.studies.stage_files import knowledge_of, reconstruction_of, truth_of
from gleak.studies.stages import path_of
from gleak.studies.study import Study


def draw(
    study: Study,
    figure: str,
    scale: str,
    scores: Sequence[Path],
    published: Path | None,
    paths: Paths,
    folder: Path,
) -> None:
    """Draw a figure.

    Args:
        study: from `gleak.studies.study.load_study`.
        figure: its name in the study.
        scale: of the grids.
        scores: table of each of the figure's grids (`gleak.figures.tabulate`).
        published: the paper's values; None if there are none.
        paths: of reconstructions, private data and knowledge: figures of images read the cells of
            `Study.shown`, others their `FigureSpec.trainings`.
        folder: of the outputs, ``<figure>`` plus each of the figure's ``suffixes``.

    Raises:
        ArtifactError: if a table does not have the cells of its grid.
    """
    spec, grids = study.figure(figure, scale), study.drawn(figure, scale)
    table = _read(scores, grids)
    names = grids[0].names if grids else AxisLabels({})
    trained = [path_of(made, paths.results) for made in knowledge_of(spec.trainings(scale))]
    shown = _shown(study.shown_cells(figure, scale), table, paths)
    material = FigureData(
        scores=table,
        published=_published(published, figure),
        names=names,
        shown=shown,
        trained=trained,
        conditions=study.conditions(figure, scale),
    )
    spec.draw(material, folder / figure)


def _shown(cells: Sequence[Cell], scores: pd.DataFrame, paths: Paths) -> list[Shown]:
    """Return the cells with the files of their reconstructions."""
    reasons = refusals(scores)
    return [
        Shown(
            cell=cell,
            reconstruction=path_of(reconstruction_of(cell), paths.results),
            private=path_of(truth_of(cell), paths.results),
            reason=reasons.get(tuple(levels_of(cell).values()), ""),
        )
        for cell in cells
    ]


def _read(scores: Sequence[Path], grids: Sequence[Grid]) -> pd.DataFrame:
    """Read and concatenate the tables of the grids; each must have the cells of its grid."""
    tables = [read_scores([path]) for path in scores]
    for path, table, grid in zip(scores, tables, grids, strict=True):
        _check_cells(path, table, grid)
    joined = [join_cells(t, grid.names) for t, grid in zip(tables, grids, strict=True)]
    return pd.concat(joined, ignore_index=True) if joined else empty_scores()


def _published(path: Path | None, figure: str) -> pd.DataFrame:
    if path is None:
        return empty_published()
    table = read_published(path)
    return table[table["figure"] == figure]


def differing_cells(table: pd.DataFrame, grid: Grid) -> list[str]:
    """Return the cells that a grid and a table of scores do not have in common, sorted."""
    wanted = {"/".join(row.values()) for row in grid.scored}
    return sorted(wanted ^ set(table[CELL].agg("/".join, axis=1)))


def _check_cells(path: Path, table: pd.DataFrame, grid: Grid) -> None:
    if differing := differing_cells(table, grid):
        raise ArtifactError(
            f"{path}: not the table of grid {grid.name!r} at scale {grid.scale!r}: "
            f"{len(differing)} cells differ, {differing[0]} first; delete it and run again"
        )
