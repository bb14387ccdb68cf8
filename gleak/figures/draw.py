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
from gleak.studies.cell import Paths, levels_of
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
    """Draw a figure of a study.

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
    tables = [_read(path, grid) for path, grid in zip(scores, grids, strict=True)]
    joined = pd.concat(tables, ignore_index=True) if tables else empty_scores()
    papers = empty_published() if published is None else read_published(published)
    reasons = refusals(joined)
    material = FigureData(
        scores=joined,
        published=papers[papers["figure"] == figure],
        names=grids[0].names if grids else AxisLabels({}),
        shown=[
            Shown(
                cell=cell,
                reconstruction=path_of(reconstruction_of(cell), paths.results),
                private=path_of(truth_of(cell), paths.results),
                reason=reasons.get(tuple(levels_of(cell).values()), ""),
            )
            for cell in study.shown_cells(figure, scale)
        ],
        trained=[path_of(made, paths.results) for made in knowledge_of(spec.trainings(scale))],
        conditions=study.conditions(figure, scale),
        gates=grids[0].gates if grids else None,
    )
    spec.draw(material, folder / figure)


def _read(path: Path, grid: Grid) -> pd.DataFrame:
    """Read a table that must have the cells of its grid, and add the cell of each row."""
    table = read_scores([path])
    if differing := differing_cells(table, grid):
        raise ArtifactError(
            f"{path}: not the table of grid {grid.name!r} at scale {grid.scale!r}: "
            f"{len(differing)} cells differ, {differing[0]} first; delete it and run again"
        )
    return join_cells(table, grid.names)


def undeclared_cells(table: pd.DataFrame, grid: Grid) -> list[str]:
    """Return the cells of a table of scores that its grid does not have, sorted."""
    return sorted(_cells_in(table) - _declared_in(grid))


def differing_cells(table: pd.DataFrame, grid: Grid) -> list[str]:
    """Return the cells that a grid and a table of scores do not have in common, sorted."""
    return sorted(_cells_in(table) ^ _declared_in(grid))


def _cells_in(table: pd.DataFrame) -> set[str]:
    return {*table[CELL].drop_duplicates().agg("/".join, axis=1)}


def _declared_in(grid: Grid) -> set[str]:
    return {"/".join(row.values()) for row in grid.scored}
