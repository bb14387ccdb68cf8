"""Stages of the workflow, with their input and output files.

Rules (``rules/*.smk``), paths, the estimates of ``gleak plan`` and the table in docs/design.md are
derived from `STAGES`. Snakemake imports this module to build its graph, so heavy imports are lazy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gleak.artifacts.update import GRANTS
from gleak.knowledge.base import Pretraining
from gleak.studies.cell import LEVELS, TRUTH, Cell
from gleak.studies.stage_files import (
    Inputs,
    Made,
    Subject,
    audit_of,
    dataset_of,
    files_in,
    model_of,
    reads_of_attack,
    reads_of_audit,
    reads_of_clients,
    reads_of_draw,
    reads_of_figure,
    reads_of_member_scores,
    reads_of_membership,
    reads_of_score,
    reads_of_search,
    reads_of_table,
    reads_of_verdicts,
    shards_of,
    truth_of,
)

CELL = "artifacts/" + "/".join(f"{{{level}}}" for level in LEVELS)
STUDY = "studies/{study}/{scale}"


@dataclass(frozen=True)
class JobMemory:
    """Megabytes of a job: a base plus a number of copies of its update or model.

    Plus a checkpoint of its searches, if it runs some.
    """

    base: int
    copies: int = 0
    of: str = "update"
    searches: bool = False


@dataclass(frozen=True)
class Stage:
    """One rule of the workflow.

    Args:
        rule: name of the rule and of its script.
        folder: folder of the outputs below the results, with wildcards.
        outputs: name -> file in the folder, or several.
        memory: memory of a job.
        minutes: time limit of a job.
        reads: returns the files of other stages that a job reads.
        reads_else: other inputs, in words, for the design page.
        code: module that does the work; jobs rerun if it changes.
        levels: levels whose specs do the work; jobs rerun if their code or fields change.
        gpu: True if jobs can compute on a GPU; see `gleak.studies.estimate.gpu_quarters`.
        log: name of the log file, with wildcards; ``<rule>`` unless given.
    """

    rule: str
    folder: str
    outputs: Mapping[str, str | tuple[str, ...]]
    code: str
    memory: JobMemory = JobMemory(4000)
    minutes: int = 30
    reads: Callable[[Any], Inputs] = lambda subject: {}
    levels: tuple[str, ...] = ()
    reads_else: str = ""
    gpu: bool = False
    log: str = ""

    @property
    def files(self) -> list[str]:
        """Paths of all outputs in the folder, with wildcards."""
        several = ([one] if isinstance(one, str) else one for one in self.outputs.values())
        return [file for files in several for file in files]

    def record(self, folder: Path | str, suffix: str) -> str:
        """Return the path of a job's log or benchmark with its wildcards."""
        return f"{folder}/{self.folder.removeprefix('artifacts/')}/{self.log or self.rule}{suffix}"


def path_of(made: Made, results: Path) -> Path:
    stage, subject = STAGES[made.rule], made.subject
    file = stage.outputs.get(made.output, made.output)
    wildcards = subject.strings() if isinstance(subject, Cell | Pretraining) else subject.wildcards
    return results / f"{stage.folder}/{file}".format(**wildcards)


def paths_of(files: Made | Inputs | Sequence[Made], results: Path) -> Any:
    """Return the path of a file, or the paths of several, by name if they have names."""
    if isinstance(files, Made):
        return str(path_of(files, results))
    if isinstance(files, dict):
        return {name: paths_of(several, results) for name, several in files.items()}
    return [paths_of(made, results) for made in files]


def upto(level: str, after: str = "") -> str:
    """Return the folder of cells truncated after a level, with wildcards."""
    return CELL[: CELL.index(f"{{{level}}}")] + f"{{{level}}}{after}"


_GRANTED = tuple(f"granted/{grant}.h5" for grant in GRANTS)
_ATTACK = {"reconstruction": "reconstruction.h5", "provenance": "provenance.json"}
_SCORES = {"scores": "scores.csv"}

STAGES: dict[str, Stage] = {
    stage.rule: stage
    for stage in (
        Stage(
            "prepare_dataset",
            upto("dataset"),
            {"dataset": "dataset.h5"},
            minutes=60,
            code="gleak.data.prepare",
            levels=("dataset",),
            reads_else="bundled files, an image folder, or torchvision's download",
        ),
        Stage(
            "train_model",
            upto("training"),
            {"model": "model.h5"},
            minutes=240,
            reads=lambda cell: {"dataset": dataset_of(cell)},
            code="gleak.training.train_model",
            levels=("model", "training"),
            gpu=True,
        ),
        Stage(
            "take_captured_model",
            upto("training"),
            {"model": "model.h5"},
            memory=JobMemory(4000, 2, "model"),
            reads=lambda cell: {"dataset": dataset_of(cell)},
            code="gleak.captures.take",
            levels=("model",),
            reads_else="the model of a capture",
        ),
        Stage(
            "train_knowledge",
            "knowledge/{dataset}/{knowledge}",
            {"knowledge": "knowledge.h5", "provenance": "provenance.json"},
            memory=JobMemory(8000),
            minutes=720,
            reads=lambda pretraining: {"dataset": dataset_of(pretraining)},
            code="gleak.knowledge.train_knowledge",
            levels=("knowledge",),
            gpu=True,
        ),
        Stage(
            "craft_parameters",
            upto("crafting"),
            {"parameters": "parameters.h5", "secret": "secret.h5"},
            memory=JobMemory(4000, 3, "model"),
            reads=lambda cell: {"model": model_of(cell)},
            code="gleak.crafting.base",
            levels=("model", "crafting"),
        ),
        Stage(
            "simulate_clients",
            upto("defense"),
            {"sent": "update.h5", "private": "private.h5", "granted": _GRANTED},
            memory=JobMemory(4000, 3),
            minutes=60,
            reads=reads_of_clients,
            code="gleak.simulation.simulate",
            levels=("model", "client", "defense"),
            gpu=True,
        ),
        Stage(
            "take_captured_update",
            upto("defense"),
            {"sent": "update.h5"},
            memory=JobMemory(2000, 3),
            code="gleak.captures.take",
            levels=("client", "defense"),
            reads_else="the update of a capture",
        ),
        Stage(
            "take_captured_truth",
            upto("defense"),
            {"private": "private.h5", "granted": _GRANTED},
            memory=JobMemory(4000, 3),
            minutes=60,
            reads=reads_of_clients,
            code="gleak.captures.take",
            levels=("model", "client"),
            reads_else="the truth of a capture",
            gpu=True,
        ),
        Stage(
            "attack",
            upto("attack"),
            _ATTACK,
            memory=JobMemory(6000, 3, searches=True),
            minutes=240,
            reads=reads_of_attack,
            code="gleak.attacks.run_attack",
            levels=("model", "attack"),
            gpu=True,
        ),
        Stage(
            "attack_shard",
            upto("attack", "/shards/{shard}-of-{shards}"),
            _ATTACK,
            memory=JobMemory(6000, 3, searches=True),
            minutes=240,
            reads=lambda shard: reads_of_attack(shard.cell),
            code="gleak.attacks.run_attack",
            levels=("model", "attack"),
            gpu=True,
            log="attack",
        ),
        Stage(
            "gather_shards",
            upto("attack"),
            _ATTACK,
            reads=lambda shards: {
                "reconstructions": [Made("attack_shard", "reconstruction", one) for one in shards],
                "provenance": [Made("attack_shard", "provenance", one) for one in shards],
            },
            code="gleak.attacks.run_attack",
        ),
        Stage(
            "draw_candidates",
            upto("defense", "/candidates/{number}"),
            {"candidates": "granted/candidates.h5", "members": "members.h5"},
            reads=reads_of_draw,
            code="gleak.simulation.draw_candidates",
        ),
        Stage(
            "infer_members",
            upto("attack"),
            {"membership": "membership.h5", "provenance": "provenance.json"},
            memory=JobMemory(6000, 3),
            minutes=240,
            reads=reads_of_membership,
            code="gleak.membership.infer_members",
            levels=("model", "attack"),
        ),
        Stage(
            "audit_privacy",
            upto("attack"),
            {"audit": "audit.h5", "provenance": "provenance.json"},
            memory=JobMemory(4000),
            minutes=240,
            reads=reads_of_audit,
            code="gleak.membership.audit_privacy",
            levels=("model", "client", "defense", "attack"),
        ),
        Stage(
            "score",
            upto("attack"),
            _SCORES,
            memory=JobMemory(4000),
            reads=reads_of_score,
            code="gleak.metrics.score",
        ),
        Stage(
            "score_members",
            upto("attack"),
            _SCORES,
            memory=JobMemory(2000),
            minutes=10,
            reads=reads_of_member_scores,
            code="gleak.metrics.score_members",
        ),
        Stage(
            "score_audit",
            upto("attack"),
            _SCORES,
            memory=JobMemory(2000),
            minutes=10,
            reads=lambda cell: {"audit": audit_of(cell)},
            code="gleak.metrics.score_audit",
        ),
        Stage(
            "score_truth",
            upto("defense", f"/{TRUTH}"),
            _SCORES,
            memory=JobMemory(4000),
            reads=lambda cell: {"dataset": dataset_of(cell), "private": truth_of(cell)},
            code="gleak.metrics.score",
            log="score",
        ),
        Stage(
            "score_model",
            upto("training"),
            _SCORES,
            memory=JobMemory(2000),
            minutes=10,
            reads=lambda cell: {"model": model_of(cell)},
            code="gleak.metrics.score",
        ),
        Stage(
            "score_parameters",
            upto("crafting"),
            _SCORES,
            memory=JobMemory(4000, 4, "model"),
            minutes=60,
            reads=reads_of_clients,
            code="gleak.metrics.score",
            levels=("model",),
        ),
        Stage(
            "search",
            STUDY,
            {
                "trials": "searches/{search}/trials.csv",
                "chosen": "searches/{search}/chosen.yaml",
                "provenance": "searches/{search}/provenance.json",
            },
            memory=JobMemory(6000, 3, searches=True),
            minutes=720,
            reads=reads_of_search,
            code="gleak.studies.search.run",
            gpu=True,
            log="{search}.search",
            reads_else="what `attack` reads, and `private.h5` of victims from the train split",
        ),
        Stage(
            "tabulate",
            STUDY,
            {"table": "grids/{grid}.csv"},
            memory=JobMemory(2000),
            minutes=10,
            reads=reads_of_table,
            code="gleak.figures.tabulate",
            log="{grid}.tabulate",
            reads_else="`scores.csv` of the grid's cells",
        ),
        Stage(
            "draw",
            STUDY,
            {"picture": "{figure}.svg", "numbers": "{figure}.csv", "bitmap": "{figure}.png"},
            memory=JobMemory(2000),
            minutes=10,
            reads=reads_of_figure,
            code="gleak.figures.draw",
            reads_else="tables of its grids; `reconstruction.h5` and `private.h5` of the images it "
            "shows; `knowledge.h5` whose losses it draws; the study, the published numbers",
            log="{figure}.draw",
        ),
        Stage(
            "judge",
            STUDY,
            {"csv": "expectations.csv", "markdown": "expectations.md", "page": "expectations.html"},
            memory=JobMemory(2000),
            minutes=10,
            reads=reads_of_verdicts,
            code="gleak.figures.judge",
            reads_else="the tables of all grids, the study, the published numbers, the recorded "
            "headlines",
        ),
    )
}


def jobs_behind(targets: Iterable[Made], shards: int = 1) -> Iterator[tuple[Stage, Subject]]:
    """Yield every job needed to create the targets, once each; each attack in some shards."""
    waiting, seen = list(targets), set()
    while waiting:
        made = waiting.pop()
        by_shards, subject = made.rule == "attack" and shards > 1, made.subject
        stage = STAGES["gather_shards" if by_shards else made.rule]
        if (stage.rule, subject) in seen:
            continue
        seen.add((stage.rule, subject))
        yield stage, subject
        waiting += files_in(stage.reads(shards_of(subject, shards) if by_shards else subject))
