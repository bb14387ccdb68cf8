"""Recorded runs: scores of finished grids with their conditions, and the pages of their results.

The folder of a study and scale contains ``<grid>.csv.gz``, the table of each recorded grid,
``conditions.yaml``, and pictures of reconstructions, which cannot be drawn from scores.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd

from gleak.artifacts.atomic import atomic
from gleak.artifacts.dataset import read_sizes
from gleak.core.errors import ArtifactError
from gleak.core.markup import table_in_markdown, to_markdown
from gleak.core.settings import SCALES, Scale, Settings
from gleak.figures.canvas.forest import draw_forest
from gleak.figures.canvas.tables import table_in_page
from gleak.figures.draw import differing_cells, draw, undeclared_cells
from gleak.figures.headlines import (
    choose_headlines,
    compare,
    count,
    in_page,
    list_headlines,
)
from gleak.figures.identified_claims import judge_by_identification, section
from gleak.figures.judge import in_words, judge_claims
from gleak.figures.published import empty_published, read_published
from gleak.figures.record_files import (
    CONDITIONS,
    SUFFIX,
    Conditions,
    distinct,
    read_conditions,
    save_record,
)
from gleak.figures.statistics import refusals
from gleak.figures.verdict_table import tabulate_verdicts
from gleak.metrics.score_table import read_scores
from gleak.runtime import provenance
from gleak.studies.cell import Cell, Paths, levels_of
from gleak.studies.estimate import format_duration, hours, plan_study
from gleak.studies.machine import Machine
from gleak.studies.stage_files import (
    Made,
    StudyPart,
    audit_of,
    datasets_of_victims,
    membership_of,
    model_of,
    parameters_of,
    reconstruction_of,
    table_of,
)
from gleak.studies.stages import path_of
from gleak.studies.study import Study

HEADLINES = "headlines"
"""Stem of the picture of the headline claims."""
LETTERS = 12  # of a digest
LAST_MADE = {
    "training": model_of,
    "crafting": parameters_of,
    "attack": reconstruction_of,
    "membership": membership_of,
    "audit": audit_of,
}
"""Kind of the last spec of a cell -> the file that its last job makes."""


def finished_grids(study: Study, scale: Scale, results: Path) -> list[str]:
    """Return the grids of a study whose tables a run has made."""
    part = StudyPart(study, scale)
    return [grid for grid in study.grids if path_of(table_of(part, grid), results).is_file()]


def record_grid(study: Study, grid: str, scale: Scale, results: Path, folder: Path) -> Conditions:
    """Copy the table of a finished grid into the folder of a record, with its conditions.

    Raises:
        ArtifactError: the grid has no table, or that of other cells than it has now; names the
            command that makes it.
        DamagedError: the table or a provenance file cannot be read.
    """
    table = path_of(table_of(StudyPart(study, scale), grid), results)
    command = f"snakemake {shlex.quote(str(table))}"
    if not table.is_file():
        raise ArtifactError(f"{table}: not computed yet; run: {command}")
    scores, declared = read_scores([table]), study.grid(grid, scale)
    if differing := differing_cells(scores, declared):
        raise ArtifactError(
            f"{table}: {len(differing)} cells are not those of grid {grid!r}, {differing[0]} "
            f"first; run: {command}"
        )
    refused = set(refusals(scores).index)
    cells = [cell for cell in declared.cells if tuple(levels_of(cell).values()) not in refused]
    conditions = conditions_of([c.repetitions(declared.networks) for c in cells], results)
    save_record(grid, scores, conditions, folder)
    return conditions


def conditions_of(cells: Sequence[Sequence[Cell]], results: Path) -> Conditions:
    """Summarise the provenance of the last level of each cell; at least one.

    Args:
        cells: repetitions of each cell that a run has computed.
        results: folder of the run.
    """
    computed = [*chain.from_iterable(cells)]
    made = [LAST_MADE[cell.end_kind](cell) for cell in computed]
    facts = [provenance.load(path_of(file, results).parent) for file in made]
    times = sorted(str(fact["time"]) for fact in facts)
    return Conditions(
        commits=distinct(fact["commit"] or "unknown" for fact in facts),
        versions=distinct(f"gleak {fact['gleak']}, torch {fact['torch']}" for fact in facts),
        devices=distinct(fact["device"] for fact in facts),
        threads=distinct(fact["threads"] for fact in facts),
        begun=times[0],
        ended=times[-1],
        cells=len(cells),
        cpu_hours=round(sum(fact["cpu_seconds"] for fact in facts) / 3600, 3),
        samples=read_sizes(path_of(file, results) for file in datasets_of_victims(computed)),
    )


def record_picture(study: Study, figure: str, scale: Scale, results: Path, folder: Path) -> bool:
    """Copy the picture of a figure of reconstructions into a record, in 256 colours.

    Return False if the run has not drawn it, or if it is drawn from scores.
    """
    part = StudyPart(study, scale, "figure", figure)
    drawn = path_of(Made("draw", "bitmap", part), results)
    if study.figure(figure).needs != "reconstructions" or not drawn.is_file():
        return False
    folder.mkdir(parents=True, exist_ok=True)
    _copy_picture(drawn, folder)
    return True


def _copy_picture(drawn: Path, folder: Path) -> None:
    """Copy a picture in 256 colours."""
    from PIL import Image

    with Image.open(drawn) as picture, atomic(folder / drawn.name) as temporary:
        picture.convert("RGB").quantize(256).save(temporary, format="PNG", optimize=True)


@dataclass(frozen=True)
class Record:
    """A recorded run of a study, as it is declared now, at one scale."""

    study: Study
    scale: Scale
    folder: Path
    published: Path | None
    """The paper's values; None if there are none."""

    @property
    def conditions(self) -> dict[str, Conditions]:
        """Conditions of each recorded grid that the study still has."""
        known = self.study.grids
        return {name: c for name, c in read_conditions(self.folder).items() if name in known}

    @cached_property
    def declared(self) -> dict[str, pd.DataFrame]:
        """Scores of the recorded grids whose recorded cells the study all declares now."""
        tables = {name: read_scores([self.table(name)]) for name in self.conditions}
        return {
            name: table
            for name, table in tables.items()
            if not undeclared_cells(table, self.study.grid(name, self.scale))
        }

    @cached_property
    def current(self) -> dict[str, pd.DataFrame]:
        """Scores of the recorded grids whose cells are those that the study declares now."""
        return {
            name: table
            for name, table in self.declared.items()
            if not differing_cells(table, self.study.grid(name, self.scale))
        }

    @cached_property
    def verdicts(self) -> pd.DataFrame:
        """Verdicts on the claims on recorded grids; without data if cells are not yet recorded."""
        study, papers = self._judged, empty_published()
        if self.published is not None:
            papers = read_published(self.published)
        table = judge_claims(study, self.scale, self.declared, papers, self._sizes)
        return in_words(study, self.scale, table)

    @cached_property
    def identified(self) -> pd.DataFrame:
        """Verdicts by identification on the claims on recorded grids that are about nearness."""
        judged, scale = self._judged, self.scale
        return judge_by_identification(judged, scale, self.declared, self._sizes, self.verdicts)

    @property
    def _judged(self) -> Study:
        """The study with the claims on recorded grids alone."""
        claims = [claim for claim in self.study.expectations if claim.grid in self.declared]
        return replace(self.study, expectations=claims)

    @property
    def _sizes(self) -> dict[str, dict[str, int]]:
        return {k: v for facts in self.conditions.values() for k, v in facts.samples.items()}

    def table(self, grid: str) -> Path:
        """Return the file with the scores of a grid."""
        return self.folder / f"{grid}{SUFFIX}"


def headlines_of(records: Sequence[Record]) -> pd.DataFrame:
    """Return the verdicts on the headline claims of a study, from its records; at least one."""
    by_scale = {record.scale: record.verdicts for record in records}
    return choose_headlines(records[0].study, by_scale)


def write_results(record: Record, page: Path, headlines: pd.DataFrame | None = None) -> None:
    """Write the page of a record, and the pictures that it shows beside the record.

    The page, in Markdown, is in the folder that contains that of the record.

    Args:
        record: its scores.
        page: the file.
        headlines: of all records of the study, by `headlines_of`; None: of this one.

    Raises:
        ArtifactError: nothing is recorded, or a table is missing.
        DamagedError: a table is not one of scores.
    """
    if not record.conditions:
        raise ArtifactError(
            f"{record.folder}: nothing is recorded; after a run: gleak record "
            f"{shlex.quote(record.study.name)} --scale {record.scale}"
        )
    study = record.study
    head = (
        f"# `{study.name}`: results at the scale `{record.scale}`\n\n"
        f"{to_markdown(study.paper)}. Written by `make results STUDY={study.name}` from the scores "
        f"in [{record.folder.name}/]({record.folder.name}/{CONDITIONS}); comments are in the notes."
    )
    shown = headlines_of([record]) if headlines is None else headlines
    parts = [head, *_open(record, shown), *_draw(record), *_judge(record)]
    parts += [*section(record.identified), *_describe(record), *_left_out(record)]
    with atomic(page) as temporary:
        temporary.write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def _open(record: Record, headlines: pd.DataFrame) -> Iterator[str]:
    """Yield the section of the headline claims: a picture, and each in words."""
    if headlines.empty:
        return
    yield "## Headline claims"
    yield count(headlines["verdict"])
    if rows := compare(record.study, headlines):
        with TemporaryDirectory() as place:
            draw_forest(rows, Path(place, HEADLINES))
            _copy_picture(Path(place, f"{HEADLINES}.png"), record.folder)
        yield f"![Headline claims]({record.folder.name}/{HEADLINES}.png)"
    yield list_headlines(headlines)


def _judge(record: Record) -> list[str]:
    """Return the section with the verdicts on all claims."""
    verdicts = record.verdicts
    return [
        "## All claims",
        count(verdicts["verdict"]),
        in_page(tabulate_verdicts(verdicts)),
    ]


def _draw(record: Record) -> Iterator[str]:
    """Yield the section of each figure."""
    with TemporaryDirectory() as place:
        for name, spec in record.study.figures.items():
            if shown := _shown(record, name, Path(place)):
                origin = f"{spec.reproduces}. " if spec.reproduces else ""
                yield f"## {to_markdown(spec.title or name)}"
                yield to_markdown(f"{origin}{spec.caption}")
                yield shown


def _shown(record: Record, figure: str, place: Path) -> str:
    """Return a figure as Markdown: its table, its picture, or why it is not shown; or nothing."""
    spec = record.study.figure(figure)
    picture = record.folder / f"{figure}.png"
    link = f"![{to_markdown(spec.title or figure)}]({record.folder.name}/{picture.name})"
    if spec.needs == "reconstructions" or not spec.grids:
        return link if picture.is_file() else ""
    if not all(grid in record.conditions for grid in spec.grids):
        return ""
    if not all(grid in record.declared for grid in spec.grids):
        return "Recorded before the cells of its grid were changed."
    if not all(grid in record.current for grid in spec.grids):
        return "Not all cells of its grid are recorded yet."
    tables = [record.table(grid) for grid in spec.grids]
    draw(record.study, figure, record.scale, tables, record.published, Paths(place), place)
    if ".html" in spec.suffixes:
        return table_in_page((place / f"{figure}.html").read_text(encoding="utf-8"))
    shutil.copyfile(place / f"{figure}.png", picture)
    return link


def _describe(record: Record) -> list[str]:
    """Return the conditions of each grid."""
    rows = [
        {
            "grid": f"[{name}]({record.folder.name}/{name}{SUFFIX})",
            "commit": ", ".join(commit[:LETTERS] for commit in facts.commits),
            "versions": to_markdown("; ".join(facts.versions)),
            "device": to_markdown(", ".join(facts.devices))
            + f", {'/'.join(map(str, facts.threads))} threads",
            "begun (UTC)": facts.begun,
            "cells": facts.cells,
            "CPU hours": facts.cpu_hours,
            "sha256": sha256(record.table(name).read_bytes()).hexdigest()[:LETTERS],
        }
        for name, facts in record.conditions.items()
    ]
    total = sum(facts.cpu_hours for facts in record.conditions.values())
    note = f"{total:.1f} CPU hours in all, of the last jobs of each cell."
    return ["## Conditions", table_in_markdown(pd.DataFrame(rows)), note]


def _left_out(record: Record) -> list[str]:
    """Return the section of the grids that are not recorded as declared: cost by the plan, claims.

    The cost is that on the reference machine, so that the page is the same on every machine.
    """
    study = record.study.at(record.scale)
    left = [name for name in study.grids if name not in record.current]
    if not left:
        return []
    plans = plan_study(study, Settings(studies=[study.name], scale=record.scale))
    claims = record.study.expectations
    rows = [
        {
            "grid": name,
            "CPU time": format_duration(hours(plans[name], Machine())),
            "claims": ", ".join(f"`{claim.id}`" for claim in claims if claim.grid == name),
        }
        for name in left
    ]
    note = (
        "Not run, or not completely, with the cells declared now; time of the whole grid on one "
        "core as `gleak plan` estimates it."
    )
    return ["## Not run", note, table_in_markdown(pd.DataFrame(rows))]


def records_of(study: Study, folder: Path, published: Path | None) -> list[Record]:
    """Return the records of a study, one for each recorded scale: ``folder/<study>/<scale>``."""
    records = [Record(study, scale, folder / study.name / scale, published) for scale in SCALES]
    return [record for record in records if read_conditions(record.folder)]
