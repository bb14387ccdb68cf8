"""What all rules share: the checked configuration, cells, paths and source digests."""

import json
from functools import cache
from pathlib import Path

from snakemake.logging import logger

from gleak.artifacts.refused import refusal_in
from gleak.experiments.cell import TRUTH, Cell, Paths
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
PATHS = Paths(SETTINGS.results_dir)
ARTIFACTS = f"{SETTINGS.results_dir}/artifacts"
KNOWLEDGE = f"{SETTINGS.results_dir}/knowledge"
LOGS = f"{SETTINGS.results_dir}/logs"
BENCHMARKS = f"{SETTINGS.results_dir}/benchmarks"
CAPTURED = r"captured(?=[+/])[^/]*"
NOT_CAPTURED = r"(?!captured[+/])[^/]+"
DATASET = "{dataset}"
MODEL = f"{DATASET}/{{model}}/{{training}}"
CRAFTED = f"{MODEL}/{{crafting}}"
SENT = f"{CRAFTED}/{{client}}/{{defense}}"
ATTACKED = f"{SENT}/{{attack}}"


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


def parameters(wildcards):
    """The file with the parameters that are broadcast."""
    return broadcast(cell(wildcards))


def broadcast(levels):
    """The file with the parameters that are broadcast to a cell's clients."""
    if levels.crafting.broadcasts_model:
        return f"{PATHS.folder(levels.upto('training'))}/model.h5"
    return f"{PATHS.folder(levels.upto('crafting'))}/parameters.h5"


def memory(base, copies, of=update_bytes):
    """For `resources`: megabytes of a job that holds its cell's updates so many times at once.

    Or its parameters, of=model_bytes.
    """
    return lambda wildcards: base + copies * of(cell(wildcards)) // 10**6
