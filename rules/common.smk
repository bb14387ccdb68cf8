"""What all rules share: the checked configuration, cells, paths and source digests."""

import json
from functools import cache
from pathlib import Path

from snakemake.logging import logger

from gleak.artifacts.refused import refusal_in
from gleak.experiments.cell import TRUTH, Cell
from gleak.experiments.stage_files import CAPTURED, Made, StudyPart, dataset_of, shards_of
from gleak.experiments.stages import STAGES, path_of
from gleak.core.errors import GleakError
from gleak.knowledge.base import Pretraining
from gleak.metrics.score_table import refusal_in_scores
from gleak.experiments.own_models import check_own_model
from gleak.experiments.estimate import model_bytes, update_bytes
from gleak.runtime.logs import quarantine
from gleak.runtime.source_digest import source_digest
from gleak.core.settings import SCALES, Settings
from gleak.experiments.study import load_study


def checked(make):
    """What `make()` gives; an error of gleak's own stops the workflow as one plain line.

    Snakemake shows any exception but this one with a traceback and the job's wildcards around it.
    """
    try:
        return make()
    except GleakError as error:
        raise SystemExit(f"gleak: {error}") from None


SETTINGS = checked(lambda: Settings.read(config))
if workflow.is_main_process:
    checked(SETTINGS.check_results)
    for damaged in quarantine(Path(SETTINGS.results_dir)):
        logger.warning(f"gleak: {damaged} was found damaged, and is renamed to be made again")
STUDIES = {
    name: checked(lambda: load_study(Path(workflow.basedir) / "studies" / f"{name}.yaml"))
    for name in SETTINGS.studies
}
RESULTS = SETTINGS.results_dir
LOGS = f"{RESULTS}/logs"
BENCHMARKS = f"{RESULTS}/benchmarks"
ONLY_CAPTURED = rf"{CAPTURED}(?=[+/])[^/]*"
NOT_CAPTURED = rf"(?!{CAPTURED}[+/])[^/]+"


wildcard_constraints:
    dataset="[^/]+",
    knowledge="[^/]+",
    model="[^/]+",
    training="[^/]+",
    crafting="[^/]+",
    client="[^/]+",
    defense="[^/]+",
    attack=f"(?!{TRUTH}/)[^/]+",
    study="[^/]+",
    search="[^/]+",
    scale="|".join(SCALES),


def cell(wildcards):
    """The cell a job belongs to, as far as its path goes."""
    return cell_of(tuple(wildcards.items()))


@cache
def cell_of(levels):
    """The cell of a job's wildcards; a job asks for it a dozen times.

    Users' own networks are tried where jobs are planned, not by each job again.
    """
    found = checked(lambda: Cell.from_path(dict(levels)))
    if workflow.is_main_process:
        remake_refused_targets()
        checked(lambda: check_own_model(found, SETTINGS.data_dir))
    return found


def resolved(*levels):
    """For `params`: every field of these levels' specs, so that a changed default reruns its jobs."""
    return lambda wildcards: json.dumps(
        {level: cell(wildcards).specs[level].resolved() for level in levels}
    )


def source(stage, *levels, with_specs=()):
    """For `params`: digest of the code a stage runs, with that of these levels' specs and others."""

    def digest(wildcards):
        parts = [*with_specs, *(cell(wildcards).components(*levels) if levels else [])]
        return source_digest(stage, *sorted({name for part in parts for name in part.modules}))

    return digest


def refused_targets():
    """What was asked for by name and turned out to be refused, with the reason."""
    for target in map(Path, workflow.dag_settings.targets or ()):
        reason = (refusal_in_scores if target.suffix == ".csv" else refusal_in)(target)
        if reason:
            yield target, reason


@cache
def remake_refused_targets():
    """Remove them once, while jobs are planned: what is asked for by name is tried again."""
    for refused, _ in refused_targets():
        refused.unlink()


def outputs(rule):
    """For `output`: the files that a stage makes."""
    return STAGES[rule].patterns(RESULTS)


def log_of(rule):
    """For `log`."""
    return STAGES[rule].record(LOGS, ".log")


def benchmark_of(rule):
    """For `benchmark`."""
    return STAGES[rule].record(BENCHMARKS, ".tsv")


def inputs(rule, subject=cell):
    """For `input`: the files of other stages that a job reads; `subject` makes that of its path."""

    def find(wildcards):
        reads = checked(lambda: STAGES[rule].reads(subject(wildcards)))
        return {name: found_at(files) for name, files in reads.items()}

    return find


def found_at(files):
    """The path of a file, or the paths of several."""
    if isinstance(files, Made):
        return str(path_of(files, RESULTS))
    return [str(path_of(made, RESULTS)) for made in files]


def resources(rule, subject=cell):
    """For `resources`: what a job is given; `subject` makes the cell of its path."""
    stage = STAGES[rule]
    copied = {"update": update_bytes, "model": model_bytes}[stage.memory.of]

    def megabytes(wildcards):
        copies = stage.memory.copies
        return stage.memory.base + copies * copied(subject(wildcards)) // 10**6

    asked = {"gpu": int(SETTINGS.device == "cuda")} if stage.gpu != "none" else {}
    memory = megabytes if stage.memory.copies else stage.memory.base
    return {"mem_mb": memory, "runtime": stage.minutes, **asked}


def keyed_on(rule):
    """For `params`: the code and the specs of a stage, a change of which runs its jobs again."""
    stage = STAGES[rule]
    specs = {"specs": resolved(*stage.levels)} if stage.levels else {}
    return {**specs, "source": source(stage.code, *stage.levels)}
