"""Shared by all rules: the checked configuration, cells, paths and source digests."""

import json
import sys
from functools import cache
from pathlib import Path

from snakemake.cli import get_argument_parser
from snakemake.logging import logger

from gleak.artifacts.update import GRANTS
from gleak.studies.cell import TRUTH, Cell
from gleak.studies import stage_files
from gleak.studies.stage_files import CandidateDraw, Made, Shard, StudyPart
from gleak.studies.stages import STAGES, path_of, paths_of
from gleak.studies.targets import refused_targets
from gleak.core.errors import GleakError
from gleak.core.registry import kinds_at, load
from gleak.core.markup import to_json, to_report
from gleak.core.plugins import use_plugins
from gleak.knowledge.base import Pretraining
from gleak.studies.own_models import check_own_model
from gleak.studies.estimate import attacked_cell, gpu_quarters, job_megabytes
from gleak.runtime.gpu_slots import QUARTERS, visible_gpus
from gleak.runtime.hub_weights import is_unaltered
from gleak.runtime.logs import rename_damaged
from gleak.runtime.source_digest import source_digest
from gleak.core.settings import SCALES, Settings
from gleak.studies.study import load_study


def checked(make):
    """Return `make()`, or exit with a one-line message if it raises a `GleakError`.

    Snakemake shows any exception other than SystemExit with a traceback and the job's wildcards.
    """
    try:
        return make()
    except GleakError as error:
        raise SystemExit(f"gleak: {error}") from None


def targets():
    """Return the targets; Snakemake keeps those of its command line after it has read the rules."""
    settings = workflow.dag_settings
    return (ARGUMENTS if settings is None else settings).targets or ()


BY_COMMAND = Path(sys.argv[0]).name in ("snakemake", "__main__.py")
ARGUMENTS = get_argument_parser().parse_known_args(sys.argv[1:] if BY_COMMAND else [])[0]
SETTINGS = checked(lambda: Settings.read(config))
config.update(SETTINGS.model_dump(mode="json"))  # scripts read defaults, too
checked(lambda: use_plugins(SETTINGS.plugins))
if workflow.is_main_process:
    checked(SETTINGS.check_results)
    for damaged in [] if ARGUMENTS.dryrun else rename_damaged(Path(SETTINGS.results_dir)):
        logger.warning(f"gleak: {damaged} was found damaged, and is renamed to be made again")
STUDY_FILES = Path(workflow.basedir) / "studies"
# A job on a cluster node reads a study only if it needs one; see `study_of`.
CONFIGURED = checked(lambda: SETTINGS.study_files(STUDY_FILES))
STUDIES = {
    name: checked(lambda: load_study(file, [SETTINGS.scale]).at(SETTINGS.scale))
    for name, file in (CONFIGURED if workflow.is_main_process else {}).items()
}
RESULTS = SETTINGS.results_dir
SPECS = ["dataset", "knowledge", "model", "training", "crafting", "client", "defense"]
ONLY_CAPTURED = rf"{stage_files.CAPTURED}(?=[+/])[^/]*"
NOT_CAPTURED = rf"(?!{stage_files.CAPTURED}[+/])[^/]+"


def named_as(kind):
    """Return a pattern of the specs of one kind, in a path that goes on after them."""
    return rf"(?:{'|'.join(load(kind))})(?=[+/])[^/]*"


RECONSTRUCTING = "".join(rf"(?!{named_as(kind)})" for kind in kinds_at("attack")[1:]) + "[^/]+"
"""Specs of attacks, and unknown names, which are refused when their cell is read."""

DATASET = f"{RESULTS}/artifacts/{{dataset}}"
TRAINED = f"{DATASET}/{{model}}/{{training}}"
CRAFTED = f"{TRAINED}/{{crafting}}"
SENT = f"{CRAFTED}/{{client}}/{{defense}}"
ATTACKED = f"{SENT}/{{attack}}"
SHARD = f"{ATTACKED}/shards/{{shard}}-of-{{shards}}"
KNOWLEDGE = f"{RESULTS}/knowledge/{{dataset}}/{{knowledge}}"
STUDY = f"{RESULTS}/studies/{{study}}/{{scale}}"


# Jobs that run on this machine share its GPUs; those submitted to a cluster get what they ask for.
GPUS = visible_gpus() if workflow.is_main_process and SETTINGS.device != "cpu" else []
if GPUS and "gpu_quarters" not in workflow.global_resources:
    workflow.register_resource("gpu_quarters", QUARTERS * len(GPUS))


resource_scopes:
    gpu="local",
    gpu_quarters="local",


wildcard_constraints:
    **dict.fromkeys(SPECS, "[^/]+"),
    **dict.fromkeys(["study", "search", "figure"], "[^/]+"),
    attack=f"(?!{TRUTH}/){RECONSTRUCTING}",
    scale="|".join(SCALES),


def cell(wildcards):
    """Return the cell of a job, truncated after the last level of its path."""
    return cell_of(tuple(wildcards.items()))


@cache
def cell_of(levels):
    """Return the cell of a job's wildcards; cached, as each job needs it a dozen times.

    User-defined networks are checked when jobs are planned, not again in each job.
    """
    cell = checked(lambda: Cell.from_path(dict(levels)))
    if workflow.is_main_process:
        if workflow.non_local_exec:
            checked(cell.check_submission)
        remake_refused_targets()
        checked(lambda: check_own_model(cell, SETTINGS.data_dir))
    return cell


def resolved(*levels):
    """Return a `params` function for all fields of these levels' specs: new defaults rerun jobs."""
    return lambda wildcards: json.dumps(
        {level: cell(wildcards).specs[level].resolved() for level in levels}
    )


def source_of(stage, specs):
    """Return the digest of the code of a stage and of these specs."""
    return source_digest(STAGES[stage].code, *sorted({n for spec in specs for n in spec.modules}))


@cache
def remake_refused_targets():
    """Delete refused targets once, while jobs are planned, so that they are tried again."""
    for refused, _ in [] if workflow.dryrun else refused_targets(targets()):
        refused.unlink()


def log_of(rule):
    return STAGES[rule].record(f"{RESULTS}/logs", ".log")


def benchmark_of(rule):
    return STAGES[rule].record(f"{RESULTS}/benchmarks", ".tsv")


def reading(find, subject=cell):
    """Return an input function for the files of other stages that `find` gives for a subject."""
    return lambda wildcards: checked(lambda: paths_of(find(subject(wildcards)), RESULTS))


broadcast = reading(stage_files.parameters_of)
granted = reading(lambda cell: stage_files.reads_of_attack(cell)["granted"])
secret = reading(lambda cell: stage_files.reads_of_attack(cell)["secret"])
candidates = reading(lambda cell: stage_files.candidates_of(cell, "candidates"))
members = reading(lambda cell: stage_files.candidates_of(cell, "members"))
knowledge = reading(lambda cell: stage_files.knowledge_of(cell.pretrainings))
evaluators = reading(lambda cell: stage_files.knowledge_of(cell.evaluators))


def resources(rule, subject=cell):
    """Return the resources of a stage's jobs; `subject` parses the wildcards.

    A job asks for a GPU (`gpu`) and, where this machine has any, for quarters of one.
    """
    stage, memory = STAGES[rule], STAGES[rule].memory

    def megabytes(wildcards):
        return job_megabytes(memory, attacked_cell(subject(wildcards)), SETTINGS.device)

    def quarters(wildcards):
        return gpu_quarters(rule, subject(wildcards), SETTINGS.device)

    gpu = {}
    if stage.gpu and SETTINGS.device != "cpu":
        gpu["gpu"] = lambda wildcards: min(1, quarters(wildcards))
        if GPUS:
            gpu["gpu_quarters"] = quarters
    return {"mem_mb": megabytes if memory.copies else memory.base, "runtime": stage.minutes, **gpu}


def keyed_on(rule):
    """Return the `params` of a stage whose change reruns its jobs: its code and specs."""
    stage = STAGES[rule]
    if not stage.levels:
        return {"source": lambda w: source_of(rule, [])}
    return {
        "specs": resolved(*stage.levels),
        "source": lambda w: source_of(rule, cell(w).components(*stage.levels)),
    }
