"""What a study will cost, told from its specs before anything runs: jobs, hours, gigabytes.

Rough on purpose. An attack is taken to spend the whole budget of every victim:

    victims x batch_size x evaluations x 12 x multiply_adds / 8.4e9 seconds

An evaluation is a gradient of a function of a gradient. A gradient costs about three forward
passes, and a gradient of any function at most about four times the function (Baur and Strassen
1983), hence 12. On one core 8.4e9 multiply-adds per second then make one victim's evaluation on
a LeNet with 32 x 32 colour images and 10 classes cost about 1 ms. Training takes epochs x
samples x 3 forward passes, that of knowledge steps x batch_size x 3, a client 3 for each gradient
of a sample, on auditing parameters too; an attack that repeats a client's local steps takes as many
gradients in each evaluation. Every job takes 4 s to start. Stopping early and victims that share a
batch make it less. GPU-hours are what trainings, attacks and searches take of a GPU in place of a
core, at 1e12 multiply-adds per second: an assumption, a few per cent of what a large GPU can do at
its best, as small networks leave it waiting. The first run of a study tells better.

On disk a sample is a byte per intensity in ``dataset.h5`` and four elsewhere, a parameter four;
compression, sparse updates, snapshots and what a server that crafts parameters remembers of them,
which is small beside them, are left out. What only a dataset's files tell is
assumed: 100 classes, 10,000 samples in each split.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
from tabulate import tabulate

from gleak.core.registry import parse
from gleak.core.settings import Settings
from gleak.experiments.cell import SCORED_BY, TRUTH, Cell, Paths
from gleak.experiments.figure_spec import FigureSpec
from gleak.experiments.search.declaration import Search
from gleak.experiments.study import Study
from gleak.knowledge.base import Pretraining
from gleak.metrics.audits.base import REACH_SAMPLES
from gleak.simulation.grants import AUXILIARY

RATE = 8.4e9
GPU_RATE = 1e12
GPU_RULES = ("train_knowledge", "train_model", "attack", "attack_shard", "search")
"""Those that the SLURM profile gives a GPU."""
FACTOR = 12
GRADIENT_FACTOR = 3
START_SECONDS = 4.0
FLOAT_BYTES = 4
ASSUMED_CLASSES = 100
ASSUMED_SAMPLES = 10_000
TOGETHER = "together"
CAPTURED = "captured"
RULES = (
    "prepare_dataset",
    "train_knowledge",
    "train_model",
    "take_captured_model",
    "craft_parameters",
    "simulate_clients",
    "take_captured_update",
    "take_captured_truth",
    "attack",
    "attack_shard",
    "gather_shards",
    "score",
    "score_truth",
    "score_model",
    "score_parameters",
    "tabulate",
    "draw",
    "judge",
)
ROUGH = (
    f"rough: each victim's whole budget at {FACTOR} forward passes per sample and evaluation, "
    f"{RATE / 1e9:g} billion multiply-adds per second on one core, {START_SECONDS:g} s to start a "
    f"job; on a GPU {GPU_RATE / 1e9:g} billion (assumed); files uncompressed; unmixing (seconds to "
    "minutes a victim) not counted"
)


@dataclass(frozen=True)
class Job:
    """One job of the workflow.

    Args:
        rule: its rule.
        output: one of the files it makes; no two jobs make the same.
        work: multiply-adds.
        bytes: of its files.
    """

    rule: str
    output: Path
    work: float = 0.0
    bytes: int = 0

    @property
    def seconds(self) -> float:
        """Estimated time on one core."""
        return START_SECONDS + self.work / RATE

    @property
    def done(self) -> bool:
        """Whether its file is there."""
        return self.output.exists()


Plan = frozenset[Job]
"""Jobs, each counted once however many cells need it."""


def plan_study(study: Study, settings: Settings) -> dict[str, Plan]:
    """The jobs of each grid at the scale of the settings, and of the whole study `TOGETHER`.

    Raises:
        SpecError: no such scale.
    """
    folder = Paths(settings.results_dir).study(study.name, settings.scale)
    plans = {name: frozenset(_grid_jobs(study, name, settings)) for name in study.grids}
    judge = {Job("judge", folder / "expectations.csv")} if study.expectations else set()
    drawn = {_draw(figure, folder) for figure in study.figures}
    trained = {job for spec in study.figures.values() for job in _figure_jobs(spec, settings)}
    return {**plans, TOGETHER: frozenset(judge | drawn | trained).union(*plans.values())}


def describe_searches(study: Study, settings: Settings) -> str:
    """What ``snakemake searches`` costs besides, each trial as the attack it begins with.

    Empty for a study without searches.

    Raises:
        SpecError: no such scale.
    """
    if not study.searches:
        return ""
    found = [study.search(name, settings.scale) for name in study.searches]
    folder = Paths(settings.results_dir).study(study.name, settings.scale)
    plan = frozenset(job for search in found for job in _search_jobs(search, folder, settings))
    trials = sum(search.trials for search in found)
    what = f"{len(found)} search{'es' if len(found) > 1 else ''} of {trials} trials"
    return f"snakemake searches: {what} in all, {_round(hours(plan))} CPU-hours"


def _search_jobs(search: Search, folder: Path, settings: Settings) -> Iterator[Job]:
    """The jobs from the dataset to what one search chose."""
    cell, paths = search.cell, Paths(settings.results_dir)
    yield from _before_attack(cell, paths)
    work = search.trials * _attack_work(cell)
    yield Job("search", folder / "searches" / search.name / "chosen.yaml", work)


def show(plans: Mapping[str, Plan]) -> str:
    """A table with a column for each plan: cells, jobs of each rule, time and space."""
    rules = [rule for rule in RULES if any(count(plan, rule) for plan in plans.values())]
    rows = {
        "cells": [str(len(_cells(plan))) for plan in plans.values()],
        "done": [_describe_done(plan) for plan in plans.values()],
        **{f"jobs: {rule}": [str(count(plan, rule)) for plan in plans.values()] for rule in rules},
        "CPU-hours": [_round(hours(plan)) for plan in plans.values()],
        "CPU-hours left": [_round(hours(remaining(plan))) for plan in plans.values()],
        "GPU-hours": [_round(gpu_hours(plan)) for plan in plans.values()],
        "GB on disk": [_round(gigabytes(plan)) for plan in plans.values()],
    }
    return tabulate(
        [[name, *values] for name, values in rows.items()],
        ["", *plans],
        tablefmt="simple",
        disable_numparse=True,
        colalign=["left", *["right"] * len(plans)],
    )


def count(plan: Plan, rule: str) -> int:
    """How many jobs of a rule there are."""
    return sum(job.rule == rule for job in plan)


def hours(plan: Plan) -> float:
    """CPU-hours on one core."""
    return sum(job.seconds for job in plan) / 3600


def gpu_hours(plan: Plan) -> float:
    """Hours of the jobs that use a GPU, where each is given one."""
    work = [job.work for job in plan if job.rule in GPU_RULES]
    return sum(START_SECONDS + each / GPU_RATE for each in work) / 3600


def gigabytes(plan: Plan) -> float:
    """Size of all files, in 10^9 bytes."""
    return sum(job.bytes for job in plan) / 1e9


def remaining(plan: Plan) -> Plan:
    """The jobs whose files are not there yet."""
    return frozenset(job for job in plan if not job.done)


def _describe_done(plan: Plan) -> str:
    cells = _cells(plan)
    return f"{len(cells - remaining(cells))} of {len(cells)}"


def _cells(plan: Plan) -> Plan:
    """The last job of each cell."""
    return frozenset(job for job in plan if job.rule in SCORED_BY.values())


def _round(value: float) -> str:
    """Two significant digits, without an exponent."""
    return np.format_float_positional(value, precision=2, fractional=False, trim="-")


def _grid_jobs(study: Study, name: str, settings: Settings) -> Iterator[Job]:
    """All that a grid's table and figures depend on; a shared job comes once for each need."""
    paths = Paths(settings.results_dir)
    folder, grid = paths.study(study.name, settings.scale), study.grid(name, settings.scale)
    for cell in grid.cells:
        yield from cell_jobs(cell, paths, settings.shards)
    for cell in grid.truths:
        yield Job("score_truth", paths.folder(cell) / TRUTH / "scores.csv")
    yield Job("tabulate", folder / "grids" / f"{name}.csv")
    for figure, spec in study.figures.items():
        if name in spec.grids:
            yield _draw(figure, folder)


def _figure_jobs(spec: FigureSpec, settings: Settings) -> Iterator[Job]:
    """What a figure is drawn from besides grids."""
    for pretraining in spec.trainings(settings.scale):
        yield from knowledge_jobs(pretraining, Paths(settings.results_dir))


def _draw(figure: str, folder: Path) -> Job:
    return Job("draw", folder / f"{figure}.svg")


def cell_jobs(cell: Cell, paths: Paths, shards: int) -> Iterator[Job]:
    """The jobs from the dataset to the scores of one cell, whatever it ends with."""
    yield from _before_attack(cell, paths)
    if "attack" in cell.specs:
        yield from _attack(cell, paths, shards)
    for pretraining in cell.judges:
        yield from knowledge_jobs(pretraining, paths)
    work = _audit_work(cell) if cell.end == "crafting" else 0.0
    yield Job(SCORED_BY[cell.end], paths.scores(cell), work)


def _before_attack(cell: Cell, paths: Paths) -> Iterator[Job]:
    """What happens before an attack, as far as a cell goes."""
    yield _prepare(cell, paths)
    yield _train(cell, paths)
    for pretraining in cell.pretrainings:
        yield from knowledge_jobs(pretraining, paths)
    if "crafting" in cell.specs and not cell.crafting.broadcasts_model:
        folder = paths.folder(cell.upto("crafting"))
        yield Job("craft_parameters", folder / "parameters.h5", bytes=model_bytes(cell))
    if "defense" in cell.specs:
        yield from _clients(cell, paths)


def _prepare(cell: Cell, paths: Paths) -> Job:
    dataset = cell.dataset
    width = 1 if dataset.modality == "image" else FLOAT_BYTES
    samples = _samples(cell, "train") + _samples(cell, "test")
    output = paths.folder(cell.upto("dataset")) / "dataset.h5"
    return Job("prepare_dataset", output, bytes=samples * prod(dataset.shape) * width)


def knowledge_jobs(pretraining: Pretraining, paths: Paths) -> Iterator[Job]:
    """The jobs of a training on public data."""
    public = Cell({"dataset": pretraining.dataset})
    yield _prepare(public, paths)
    spec, of = pretraining.knowledge, (pretraining.dataset.shape, _classes(public))
    work = spec.passes * GRADIENT_FACTOR * spec.multiply_adds(*of)
    size = FLOAT_BYTES * (spec.parameters(*of) + 2 * _samples(public, "train"))
    yield Job("train_knowledge", paths.knowledge(pretraining), work, size)


def _train(cell: Cell, paths: Paths) -> Job:
    samples = _samples(cell, "train")
    passes = cell.training.epochs_of_data(samples) * samples * GRADIENT_FACTOR
    output = paths.folder(cell.upto("training")) / "model.h5"
    rule = "take_captured_model" if cell.training.name == CAPTURED else "train_model"
    return Job(rule, output, passes * _forward(cell), model_bytes(cell))


def _clients(cell: Cell, paths: Paths) -> Iterator[Job]:
    """What is sent and granted, and the truth; of captured clients a job each."""
    client, folder = cell.client, paths.folder(cell.upto("defense"))
    samples = 2 * client.victims * client.batch_size + AUXILIARY + 1
    known = samples * prod(cell.dataset.shape) * FLOAT_BYTES
    drift = client.gradients_per_sample + 1 if client.local_descent else 0
    gradient = client.victims * client.batch_size * GRADIENT_FACTOR * _forward(cell)
    if client.name == CAPTURED:
        yield Job("take_captured_update", folder / "update.h5", bytes=update_bytes(cell))
        yield Job("take_captured_truth", folder / "private.h5", drift * gradient, known)
    else:
        work = (client.gradients_per_sample + drift) * gradient
        yield Job("simulate_clients", folder / "update.h5", work, update_bytes(cell) + known)


def _attack(cell: Cell, paths: Paths, shards: int) -> Iterator[Job]:
    client, folder = cell.client, paths.folder(cell)
    work = _attack_work(cell)
    size = client.victims * client.batch_size * prod(cell.dataset.shape) * FLOAT_BYTES
    if shards == 1:
        yield Job("attack", folder / "reconstruction.h5", work, size)
        return
    number = min(shards, client.victims)
    for shard in range(1, number + 1):
        output = folder / "shards" / f"{shard}-of-{number}" / "reconstruction.h5"
        yield Job("attack_shard", output, work / number, size // number)
    yield Job("gather_shards", folder / "reconstruction.h5", bytes=size)


def _attack_work(cell: Cell) -> float:
    """Multiply-adds of the whole budget of every victim."""
    client = cell.client
    steps = client.gradients_per_sample if cell.attack.repeats_local_steps else 1
    evaluations: float = client.victims * client.batch_size * steps * cell.attack.evaluations
    return evaluations * FACTOR * _forward(cell)


def _audit_work(cell: Cell) -> float:
    """Multiply-adds of a client's gradients on the parameters it was sent."""
    samples: int = 2 * parse("metric", "audit_dominance").samples + REACH_SAMPLES
    return samples * GRADIENT_FACTOR * _forward(cell)


def _samples(cell: Cell, split: str) -> int:
    sizes: dict[str, int] | None = cell.dataset.sizes
    return ASSUMED_SAMPLES if sizes is None else sizes[split]


def _classes(cell: Cell) -> int:
    return cell.dataset.classes or ASSUMED_CLASSES


def _forward(cell: Cell) -> int:
    """Multiply-adds of one sample's forward pass."""
    work: int = cell.model.multiply_adds(cell.dataset.shape, _classes(cell))
    return work


def update_bytes(cell: Cell) -> int:
    """Size of what all victims of a cell send, as plain single-precision values."""
    victims: int = cell.client.victims
    return victims * model_bytes(cell)


def model_bytes(cell: Cell) -> int:
    """Size of a cell's parameters, as plain single-precision values."""
    parameters: int = cell.model.parameters(cell.dataset.shape, _classes(cell))
    return parameters * FLOAT_BYTES
