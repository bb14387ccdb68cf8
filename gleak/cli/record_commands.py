"""Commands for recorded runs: ``record`` and ``results``."""

from __future__ import annotations

import shlex
import shutil
from argparse import ArgumentParser, Namespace
from collections import Counter
from pathlib import Path

from gleak.cli.common import add_config_option, read_settings
from gleak.cli.completion import offer, studies
from gleak.cli.study_commands import study_file
from gleak.core.errors import ArtifactError, GleakError, SpecError, needs_extra
from gleak.core.settings import Scale, Settings
from gleak.figures import headlines, recorded
from gleak.figures.record_files import CONDITIONS, recording
from gleak.figures.recorded import Record
from gleak.figures.verdict_table import HEADLINES, save_headlines
from gleak.runtime.workflow import Workflow, find_snakefile
from gleak.studies.study import Study, load_study

RECORDS = Path("docs/results")
DECIDED = ("holds", "fails", "differs")


def add_record(command: ArgumentParser) -> None:
    offer(command.add_argument("study", metavar="STUDY", help="file or name"), studies)
    text = "grids; default all that are finished"
    command.add_argument("grids", nargs="*", metavar="GRID", help=text)
    command.add_argument("--scale", metavar="SCALE", help="default as configured")
    text = "first compute what the record lacks, in so many hours at lowest priority"
    command.add_argument("--hours", type=float, metavar="H", help=text)
    text = "cores for --hours; default all"
    command.add_argument("--cores", default="all", metavar="N", help=text)
    _add_folder(command)
    add_config_option(command)


def run_record(arguments: Namespace) -> int:
    settings = read_settings(
        arguments.config, {"scale": arguments.scale} if arguments.scale else {}
    )
    results, scale = settings.results_dir, settings.scale
    study = load_study(study_file(arguments.study)).at(scale).examined(scale, settings.data_dir)
    if arguments.hours is not None:
        return _compute(arguments, study, settings)
    grids = arguments.grids or recorded.finished_grids(study, scale, results)
    if not grids:
        raise ArtifactError(
            f"{results}: no grid of study {study.name!r} is finished at scale {scale!r}; run: "
            f"snakemake --config {shlex.quote(f'studies={study.name}')} scale={scale}"
        )
    folder = arguments.folder / study.name / scale
    with recording(folder):
        for grid in grids:
            facts = recorded.record_grid(study, grid, scale, results, folder)
            print(f"{grid}: {facts.cells} cells, {facts.cpu_hours:.2f} CPU hours")
    draw = recorded.record_picture
    pictures = [name for name in study.figures if draw(study, name, scale, results, folder)]
    print(f"{folder}: {len(grids)} grids, {len(pictures)} pictures of reconstructions")
    return 0


def _compute(arguments: Namespace, study: Study, settings: Settings) -> int:
    """Append what the record lacks; exit code 1 if something could not be computed."""
    with needs_extra("workflow"):
        from gleak.figures.recorder import Recorder
    log = settings.results_dir / "logs/record.log"
    options = ["--configfile", str(arguments.config), "--keep-going", "--cores", arguments.cores]
    options += ["--config", f"scale={settings.scale}", f"studies={arguments.study}"]
    nice = shutil.which("nice")
    prefix = [nice, "-n", "19"] if nice else []
    workflow = Workflow(find_snakefile(None), options, log, prefix=prefix)
    folder = arguments.folder / study.name / settings.scale
    failed: list[Path] = []

    def order() -> list[str]:
        return arguments.grids or undecided_first(study, settings.scale, folder)

    for done in Recorder(study, settings, folder, workflow).run(order, arguments.hours):
        print(f"{done.grid}: {done.added} cells recorded, {done.left} left", flush=True)
        failed += done.failed
    if failed:
        raise GleakError(f"{len(failed)} files could not be computed, {failed[0]} first; see {log}")
    return 0


def undecided_first(study: Study, scale: Scale, folder: Path) -> list[str]:
    """Return the grids of a study, first those with the most claims that a record leaves open."""
    verdicts = Record(study, scale, folder, None).verdicts
    decided = set(verdicts.loc[verdicts["verdict"].isin(DECIDED), "id"])
    open_claims = Counter(each.grid for each in study.expectations if each.id not in decided)
    return sorted(study.grids, key=lambda grid: -open_claims[grid])


def add_results(command: ArgumentParser) -> None:
    text = "file or name; default all with a record"
    offer(command.add_argument("study", nargs="?", metavar="STUDY", help=text), studies)
    _add_folder(command)


def _add_folder(command: ArgumentParser) -> None:
    text = f"records; default {RECORDS}"
    command.add_argument("--folder", type=Path, default=RECORDS, metavar="DIR", help=text)


def run_results(arguments: Namespace) -> int:
    folder = arguments.folder
    found = sorted({path.parts[-3] for path in folder.glob(f"*/*/{CONDITIONS}")})
    for name in found if arguments.study is None else [arguments.study]:
        _write_results(study_file(name), folder)
    print(headlines.write_overview(folder))
    return 0


def _write_results(file: Path, folder: Path) -> None:
    """Write the pages of the records of a study, and its headlines."""
    study = load_study(file)
    published = file.parent / "published" / f"{study.name}.csv"
    published_numbers = published if published.is_file() else None
    records = recorded.records_of(study, folder, published_numbers)
    if not records:
        raise SpecError(
            f"{folder / study.name}: nothing is recorded; after a run: "
            f"gleak record {shlex.quote(study.name)}"
        )
    found = recorded.headlines_of(records)
    for record in records:
        page = record.folder.with_suffix(".md")
        recorded.write_results(record, page, found)
        print(page)
    save_headlines(found, folder / study.name / HEADLINES)
