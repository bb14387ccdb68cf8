"""Stages of the workflow, with their input and output files.

Rules (``rules/*.smk``), paths, the estimates of ``gleak plan`` and the table in docs/design.md are
derived from `STAGES`. Snakemake imports this module to build its graph, so heavy imports are lazy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from gleak.artifacts.granted import GRANTS
from gleak.knowledge.base import Pretraining
from gleak.studies.cell import LEVELS, TRUTH, Cell
from gleak.studies.stage_files import (
    Inputs,
    Made,
    Subject,
    dataset_of,
    files_in,
    model_of,
    reads_of_attack,
    reads_of_clients,
    reads_of_figure,
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
    """Megabytes of a job: a base plus a number of copies of its update or model."""

    base: int
    copies: int = 0
    of: str = "update"


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
        gpu: "optional": used where there is one; "requested": the SLURM profile asks for one.
        log: name of the log file, with wildcards; ``<rule>`` unless given.
    """

    rule: str
    folder: str
    outputs: Mapping[str, str | tuple[str, ...]]
    memory: JobMemory
    minutes: int
    reads: Callable[[Any], Inputs]
    code: str
    levels: tuple[str, ...] = ()
    reads_else: str = ""
    gpu: Literal["none", "optional", "requested"] = "none"
    log: str = ""

    @property
    def files(self) -> list[str]:
        """Paths of all outputs in the folder, with wildcards."""
        several = ([one] if isinstance(one, str) else one for one in self.outputs.values())
        return [file for files in several for file in files]

    def patterns(self, results: Path | str) -> dict[str, str | list[str]]:
        """Return the path of each output with its wildcards."""
        place = f"{results}/{self.folder}"
        return {
            name: f"{place}/{file}" if isinstance(file, str) else [f"{place}/{one}" for one in file]
            for name, file in self.outputs.items()
        }

    def record(self, folder: Path | str, suffix: str) -> str:
        """Return the path of a job's log or benchmark with its wildcards."""
        return f"{folder}/{self.folder.removeprefix('artifacts/')}/{self.log or self.rule}{suffix}"


def path_of(made: Made, results: Path) -> Path:
    stage, subject = STAGES[made.rule], made.subject
    file = stage.outputs.get(made.output, made.output)
    wildcards = subject.strings() if isinstance(subject, Cell | Pretraining) else subject.wildcards
    return results / f"{stage.folder}/{file}".format(**wildcards)


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
            JobMemory(4000),
            60,
            lambda cell: {},
            "gleak.data.prepare",
            ("dataset",),
            reads_else="bundled files, an image folder, or torchvision's download",
        ),
        Stage(
            "train_model",
            upto("training"),
            {"model": "model.h5"},
            JobMemory(4000),
            240,
            lambda cell: {"dataset": dataset_of(cell)},
            "gleak.training.train_model",
            ("model", "training"),
            gpu="requested",
        ),
        Stage(
            "take_captured_model",
            upto("training"),
            {"model": "model.h5"},
            JobMemory(4000, 2, "model"),
            30,
            lambda cell: {"dataset": dataset_of(cell)},
            "gleak.captures.take",
            ("model",),
            reads_else="the model of a capture",
        ),
        Stage(
            "train_knowledge",
            "knowledge/{dataset}/{knowledge}",
            {"knowledge": "knowledge.h5", "provenance": "provenance.json"},
            JobMemory(8000),
            720,
            lambda pretraining: {"dataset": dataset_of(pretraining)},
            "gleak.knowledge.train_knowledge",
            ("knowledge",),
            gpu="requested",
        ),
        Stage(
            "craft_parameters",
            upto("crafting"),
            {"parameters": "parameters.h5", "secret": "secret.h5"},
            JobMemory(4000, 3, "model"),
            30,
            lambda cell: {"model": model_of(cell)},
            "gleak.crafting.base",
            ("model", "crafting"),
        ),
        Stage(
            "simulate_clients",
            upto("defense"),
            {"sent": "update.h5", "private": "private.h5", "granted": _GRANTED},
            JobMemory(4000, 3),
            60,
            reads_of_clients,
            "gleak.simulation.simulate",
            ("model", "client", "defense"),
            gpu="optional",
        ),
        Stage(
            "take_captured_update",
            upto("defense"),
            {"sent": "update.h5"},
            JobMemory(2000, 3),
            30,
            lambda cell: {},
            "gleak.captures.take",
            ("client",),
            reads_else="the update of a capture",
        ),
        Stage(
            "take_captured_truth",
            upto("defense"),
            {"private": "private.h5", "granted": _GRANTED},
            JobMemory(4000, 3),
            60,
            reads_of_clients,
            "gleak.captures.take",
            ("model", "client"),
            reads_else="the truth of a capture",
            gpu="optional",
        ),
        Stage(
            "attack",
            upto("attack"),
            _ATTACK,
            JobMemory(6000, 3),
            240,
            reads_of_attack,
            "gleak.attacks.run_attack",
            ("model", "attack"),
            gpu="requested",
        ),
        Stage(
            "attack_shard",
            upto("attack", "/shards/{shard}-of-{shards}"),
            _ATTACK,
            JobMemory(6000, 3),
            240,
            lambda shard: reads_of_attack(shard.cell),
            "gleak.attacks.run_attack",
            ("model", "attack"),
            gpu="requested",
            log="attack",
        ),
        Stage(
            "gather_shards",
            upto("attack"),
            _ATTACK,
            JobMemory(4000),
            30,
            lambda shards: {
                "reconstructions": [Made("attack_shard", "reconstruction", one) for one in shards]
            },
            "gleak.attacks.run_attack",
        ),
        Stage(
            "score",
            upto("attack"),
            _SCORES,
            JobMemory(3000),
            30,
            reads_of_score,
            "gleak.metrics.score",
        ),
        Stage(
            "score_truth",
            upto("defense", f"/{TRUTH}"),
            _SCORES,
            JobMemory(3000),
            30,
            lambda cell: {"private": truth_of(cell)},
            "gleak.metrics.score",
            log="score",
        ),
        Stage(
            "score_model",
            upto("training"),
            _SCORES,
            JobMemory(2000),
            10,
            lambda cell: {"model": model_of(cell)},
            "gleak.metrics.score",
        ),
        Stage(
            "score_parameters",
            upto("crafting"),
            _SCORES,
            JobMemory(4000, 4, "model"),
            60,
            reads_of_clients,
            "gleak.metrics.score",
            ("model",),
        ),
        Stage(
            "search",
            STUDY,
            {
                "trials": "searches/{search}/trials.csv",
                "chosen": "searches/{search}/chosen.yaml",
                "provenance": "searches/{search}/provenance.json",
            },
            JobMemory(6000, 3),
            720,
            reads_of_search,
            "gleak.studies.search.run",
            gpu="requested",
            log="{search}.search",
            reads_else="what `attack` reads, and `private.h5` of victims from the train split",
        ),
        Stage(
            "tabulate",
            STUDY,
            {"table": "grids/{grid}.csv"},
            JobMemory(2000),
            10,
            reads_of_table,
            "gleak.figures.tabulate",
            log="{grid}.tabulate",
            reads_else="`scores.csv` of the grid's cells",
        ),
        Stage(
            "draw",
            STUDY,
            {"picture": "{figure}.svg", "numbers": "{figure}.csv", "bitmap": "{figure}.png"},
            JobMemory(2000),
            10,
            reads_of_figure,
            "gleak.figures.draw",
            reads_else="tables of its grids; `reconstruction.h5` and `private.h5` of the images it "
            "shows; `knowledge.h5` whose losses it draws; the study, the published numbers",
            log="{figure}.draw",
        ),
        Stage(
            "judge",
            STUDY,
            {
                "csv": "expectations.csv",
                "markdown": "expectations.md",
                "page": "expectations.html",
            },
            JobMemory(2000),
            10,
            reads_of_verdicts,
            "gleak.figures.judge",
            reads_else="the tables of all grids, the study, the published numbers",
        ),
    )
}


def jobs_behind(targets: Iterable[Made], shards: int = 1) -> Iterator[tuple[Stage, Subject]]:
    """Yield every job needed to create the targets, once each.

    Args:
        targets: files to create.
        shards: number of jobs that one attack is split into.
    """
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
