"""Estimated cost of a study, computed from its specs before any job: jobs, hours, gigabytes.

A job takes, on one core of the reference machine (an Intel Xeon with AVX-512),

    START_SECONDS + multiply_adds / 4e10 per second + calls x 5 ms

divided by the speed of this machine, if that was measured (`gleak.studies.machine`). A call is one
evaluation of all victims of an attack in one batch; an attack is assumed to use the whole budget of
every victim:

    multiply_adds = victims x samples x evaluations x passes x those of a forward pass

with the passes of `AttackSpec.cost`. Training takes epochs x samples x 3 passes, training of
knowledge steps x batch_size x 3, a client 3 for each gradient of a sample, also when it audits
parameters. Unmixing (seconds to minutes a victim) is not counted. Totals of the studies at the
quick scale are within a factor of two of what was measured, single attacks within three.

GPU-hours are the time on a GPU of the jobs that get one (`gpu_quarters`), at an assumed 1e12
multiply-adds per second, as small networks do not saturate a GPU; a job with a GPU is not forked.

On disk a sample is a byte per intensity in ``dataset.h5`` and four elsewhere, a parameter four;
compression, sparse updates, snapshots and secrets are not counted. Properties that only a dataset's
files determine are assumed: `ASSUMED_CLASSES`, and `ASSUMED_SAMPLES` in each split.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import ceil, prod
from pathlib import Path
from typing import Any

import numpy as np
from tabulate import tabulate

from gleak.attacks.matching.chunks import CPU_BYTES
from gleak.core.registry import parse
from gleak.core.settings import Settings
from gleak.knowledge.base import Pretraining
from gleak.metrics.audits.base import REACH_SAMPLES
from gleak.runtime.gpu_slots import QUARTERS
from gleak.simulation.grants import AUXILIARY
from gleak.studies.cell import SCORED_BY, Cell
from gleak.studies.machine import START_SECONDS, Machine
from gleak.studies.stage_files import CandidateDraw, Made, Shard, StudyPart, Subject, table_of
from gleak.studies.stages import STAGES, JobMemory, jobs_behind, path_of
from gleak.studies.study import Study

RATE = 4e10
GPU_RATE = 1e12
GPU_WORTH = 60 * RATE
"""Multiply-adds from which a job gets a GPU: a minute of a core; starting CUDA takes seconds."""
CALL_SECONDS = 5e-3
TOGETHER = "together"
WEIGHT_WORK = 400
"""Multiply-adds that take as long as forming the gradient of a convolution's parameter, 10 ns."""
GRADIENT_FACTOR = 3
FLOAT_BYTES = 4
GPU_BYTES = 80 * 10**9
"""Memory of the largest GPU, assumed."""
ASSUMED_CLASSES = 100
ASSUMED_SAMPLES = 10_000


@dataclass(frozen=True)
class Job:
    """One job of the workflow.

    Args:
        rule: name of the rule.
        output: one of its output files, unique to the job.
        work: number of multiply-adds.
        calls: number of evaluations of a batch.
        bytes: size of its output files.
        gpu: True if it gets a GPU.
    """

    rule: str
    output: Path
    work: float = 0.0
    calls: float = 0.0
    bytes: int = 0
    gpu: bool = False

    def seconds(self, machine: Machine) -> float:
        fixed = START_SECONDS[machine.start_method] + self.calls * CALL_SECONDS
        return (fixed + self.work / RATE) / machine.relative_speed

    def gpu_seconds(self, machine: Machine) -> float:
        """Return the estimated time if the multiply-adds run on a GPU of a machine."""
        fixed = START_SECONDS["spawn"] + self.calls * CALL_SECONDS
        return fixed / machine.relative_speed + self.work / GPU_RATE


Plan = frozenset[Job]
"""Jobs, each counted once however many cells need it."""


def plan_study(study: Study, settings: Settings) -> dict[str, Plan]:
    """Return the jobs of each grid at the settings' scale; key `TOGETHER`: of the whole study."""
    whole = StudyPart(study, settings.scale)
    verdicts = [Made("judge", "csv", whole)] if study.expectations else []
    figures = {
        name: Made("draw", "picture", StudyPart(study, settings.scale, "figure", name))
        for name in study.figures
    }
    tables = {name: table_of(whole, name) for name in study.grids}
    plans = {
        grid: jobs([table], settings)
        | {_job(figures[name], settings) for name in figures if grid in study.figure(name).grids}
        for grid, table in tables.items()
    }
    return {**plans, TOGETHER: jobs([*verdicts, *figures.values(), *tables.values()], settings)}


def jobs(targets: Iterable[Made], settings: Settings) -> Plan:
    """Return the jobs that create the target files and all files they depend on."""
    needed = jobs_behind(targets, settings.shards)
    return frozenset(_job(Made(stage.rule, "", subject), settings) for stage, subject in needed)


def _job(made: Made, settings: Settings) -> Job:
    """Return the job that creates a file, with its cost; its first output identifies it."""
    first = next(iter(STAGES[made.rule].outputs))
    work, size = COSTS.get(made.rule, (no_cost, no_cost))
    output = path_of(Made(made.rule, first, made.subject), settings.results_dir)
    calls = CALLS.get(made.rule, no_cost)(made.subject)
    gpu = gpu_quarters(made.rule, made.subject, settings.device) > 0
    return Job(made.rule, output, work(made.subject), calls, int(size(made.subject)), gpu)


def gpu_quarters(rule: str, subject: Subject, device: str) -> int:
    """Return the quarters of a GPU that a job occupies, from 1 to 4, or 0 if it gets none.

    They are the share of its time during which the GPU computes; in the rest it waits for calls.

    Args:
        rule: the job's rule.
        subject: what the job is about.
        device: "cpu": never a GPU; "cuda": for every job that can compute on one; "auto": for those
            with at least `GPU_WORTH` multiply-adds.
    """
    if device == "cpu" or not _computes_on_gpu(rule, subject):
        return 0
    work = COSTS[rule][0](subject)
    if device == "auto" and work < GPU_WORTH:
        return 0
    computing, waiting = work / GPU_RATE, CALLS.get(rule, no_cost)(subject) * CALL_SECONDS
    return max(1, ceil(QUARTERS * computing / (computing + waiting))) if computing else 1


def _computes_on_gpu(rule: str, subject: Subject) -> bool:
    if not STAGES[rule].gpu or isinstance(subject, Pretraining):
        return STAGES[rule].gpu
    specs = attacked_cell(subject).specs
    return "attack" not in specs or attacked_cell(subject).attack.uses_gpu


def attacked_cell(subject: Cell | Shard | CandidateDraw | StudyPart) -> Cell:
    """Return the cell that is attacked, also by a share of it or in trials of a search."""
    if isinstance(subject, Shard | CandidateDraw):
        return subject.cell
    return subject.search.cell if isinstance(subject, StudyPart) else subject


def describe_searches(study: Study, settings: Settings, machine: Machine) -> str:
    """Describe the additional cost of ``snakemake searches``; empty for a study without searches.

    Every trial is assumed to cost as much as the base attack.
    """
    if not study.searches:
        return ""
    parts = [StudyPart(study, settings.scale, "search", name) for name in study.searches]
    plan = jobs([Made("search", "chosen", part) for part in parts], settings)
    trials = sum(part.search.trials for part in parts)
    what = f"{len(parts)} search{'es' if len(parts) > 1 else ''} of {trials} trials"
    return f"snakemake searches: {what} in all, {format_duration(hours(plan, machine))} on one core"


def show(plans: Mapping[str, Plan], heading: str, machine: Machine) -> str:
    """Format a table with a row for each plan: cells, jobs, time and space.

    The heading is of the column with the plans' names.
    """
    rows = []
    for name, plan in plans.items():
        cells = frozenset(job for job in plan if job.rule in SCORED_BY.values())
        rows.append(
            [
                name,
                f"{len(cells - remaining(cells))} of {len(cells)}",
                str(len(plan)),
                format_duration(hours(plan, machine)),
                format_duration(hours(remaining(plan), machine)),
                format_duration(gpu_hours(plan, machine)),
                _round(gigabytes(plan)),
            ]
        )
    columns = [heading, "cells done", "jobs", "CPU time", "left", "GPU time", "GB on disk"]
    align = ["left", *["right"] * (len(columns) - 1)]
    return tabulate(rows, columns, tablefmt="simple", disable_numparse=True, colalign=align)


def describe_assumptions(machine: Machine) -> str:
    """Return what the estimates assume, in one line."""
    speed = machine.relative_speed
    known = machine.speed or "the reference machine's, as gleak plan --measure was never run here"
    return (
        f"Speed: {known}. On one core {RATE * speed / 1e9:.2g} billion multiply-adds per second, "
        f"{1000 * CALL_SECONDS / speed:.2g} ms a call, "
        f"{START_SECONDS[machine.start_method] / speed:.2g} s to start a job (start_method "
        f"{machine.start_method}); each victim's whole budget, no early stopping. On a GPU: "
        f"{GPU_RATE / 1e9:g} billion (assumed), jobs not forked. Files uncompressed. Unmixing "
        "(seconds to minutes a victim) is not counted."
    )


def describe_jobs(plan: Plan) -> str:
    counts = Counter(job.rule for job in plan)
    return "jobs: " + ", ".join(f"{rule} {counts[rule]}" for rule in STAGES if counts[rule])


def hours(plan: Plan, machine: Machine) -> float:
    return sum(job.seconds(machine) for job in plan) / 3600


def gpu_hours(plan: Plan, machine: Machine) -> float:
    """Return the total time, in hours, of the jobs that get a GPU."""
    return sum(job.gpu_seconds(machine) for job in plan if job.gpu) / 3600


def gigabytes(plan: Plan) -> float:
    return sum(job.bytes for job in plan) / 1e9


def remaining(plan: Plan) -> Plan:
    """Return the jobs whose output files do not exist yet."""
    return frozenset(job for job in plan if not job.output.exists())


def format_duration(time: float) -> str:
    """Format a time, given in hours, in seconds, minutes or hours."""
    for unit, size in (("s", 3600), ("min", 60)):
        if time * size < 100:
            return f"{_round(time * size)} {unit}"
    return f"{_round(time)} h"


def _round(value: float) -> str:
    """Format a number with two significant digits and no exponent."""
    return np.format_float_positional(value, precision=2, fractional=False, trim="-")


def _work_of_training(cell: Cell) -> float:
    return _work_of_fit(cell.training, cell)


def _work_between_rounds(cell: Cell) -> float:
    """Return the multiply-adds of the trainings by others between the clients' rounds."""
    trainings = map(cell.client.training_before, range(cell.client.rounds))
    return sum(_work_of_fit(training, cell) for training in trainings if training is not None)


def _work_of_fit(training: Any, cell: Cell) -> float:
    samples = _samples(cell, "train")
    return float(training.epochs_of_data(samples) * samples * GRADIENT_FACTOR * _forward(cell))


def _work_of_knowledge(pretraining: Pretraining) -> float:
    spec = pretraining.knowledge
    public = Cell({"dataset": pretraining.dataset})
    work = spec.multiply_adds(pretraining.dataset.shape, _classes(public))
    return spec.passes * GRADIENT_FACTOR * work


def _bytes_of_knowledge(pretraining: Pretraining) -> float:
    public = Cell({"dataset": pretraining.dataset})
    parameters = pretraining.knowledge.parameters(pretraining.dataset.shape, _classes(public))
    return FLOAT_BYTES * (parameters + 2 * _samples(public, "train"))


def _bytes_of_dataset(cell: Cell) -> float:
    width = 1 if cell.dataset.modality == "image" else FLOAT_BYTES
    samples = _samples(cell, "train") + _samples(cell, "test")
    return samples * prod(cell.dataset.shape) * width


def _work_of_drift(cell: Cell) -> float:
    """Return the multiply-adds of recomputing the local steps and one gradient of the batch."""
    client = cell.client
    gradients = client.gradients_per_sample + 1 if client.local_descent else 0
    return gradients * _work_of_gradient(cell)


def _work_of_gradient(cell: Cell) -> float:
    client = cell.client
    return float(client.victims * client.batch_size * GRADIENT_FACTOR * _forward(cell))


def _bytes_of_truth(cell: Cell) -> float:
    """Return the size, in bytes, of the truth and of the granted parts of it."""
    samples = 2 * cell.client.victims * cell.client.batch_size + AUXILIARY + 1
    return samples * prod(cell.dataset.shape) * FLOAT_BYTES


def _bytes_of_reconstruction(cell: Cell) -> float:
    client = cell.client
    return client.victims * client.batch_size * prod(cell.dataset.shape) * FLOAT_BYTES


def _attack_work(cell: Cell) -> float:
    """Return the multiply-adds of the whole budget of every victim."""
    client, attack = cell.client, cell.attack
    cost = attack.cost()
    forward = (cost.samples or client.batch_size) * cost.passes * _forward(cell)
    return float(client.victims * _attack_calls(cell) * (forward + _work_of_weights(cell)))


def _attack_calls(cell: Cell) -> float:
    """Return the number of gradients of the batch of all victims."""
    cost = cell.attack.cost()
    return (cell.client.gradients_per_sample if cost.repeats_local_steps else 1) * cost.evaluations


def _work_of_weights(cell: Cell) -> float:
    """Return the multiply-adds that take as long as forming the gradient of the convolutions.

    Gradients of dense layers are not formed, so networks that begin with one are left out.
    """
    if cell.model.first_layer == "dense":
        return 0.0
    return cell.model.parameters(cell.dataset.shape, _classes(cell)) * WEIGHT_WORK


def _audit_work(cell: Cell) -> float:
    """Return the multiply-adds of a client's gradients on the parameters that it received."""
    samples: int = 2 * parse("metric", "audit_dominance").samples + REACH_SAMPLES
    return samples * GRADIENT_FACTOR * _forward(cell)


def _privacy_audit_work(cell: Cell) -> float:
    """Return the multiply-adds of the runs with samples as canaries, each computed three times."""
    client, audit = cell.client, cell.attack
    if not audit.takes_samples:
        return 0.0
    gradients = 3 * client.batch_size * client.gradients_per_sample
    return float(audit.trials * gradients * GRADIENT_FACTOR * _forward(cell))


def no_cost(subject: Any) -> float:
    return 0.0


def _samples(cell: Cell, split: str) -> int:
    return cell.dataset.sizes[split] if cell.dataset.sizes else ASSUMED_SAMPLES


def _classes(cell: Cell) -> int:
    return cell.dataset.classes or ASSUMED_CLASSES


def _forward(cell: Cell) -> int:
    """Return the multiply-adds of one sample's forward pass."""
    return cell.model.multiply_adds(cell.dataset.shape, _classes(cell))


def update_bytes(cell: Cell) -> int:
    """Return the size, in bytes, of the updates of all victims as dense single-precision values."""
    return cell.client.victims * model_bytes(cell)


def model_bytes(cell: Cell) -> int:
    """Return the size, in bytes, of a cell's parameters as dense single-precision values."""
    return cell.model.parameters(cell.dataset.shape, _classes(cell)) * FLOAT_BYTES


def checkpoint_bytes(cell: Cell, device: str) -> int:
    """Return the size, in bytes, of the state of the victims that an attack searches at once.

    They are as many as fit into the memory of the device.
    """
    cost = cell.attack.cost()
    samples = cell.client.victims * (cost.samples or cell.client.batch_size)
    state = samples * prod(cell.dataset.shape) * cost.state
    return min(state, CPU_BYTES if device == "cpu" else GPU_BYTES)


def job_megabytes(memory: JobMemory, cell: Cell, device: str) -> int:
    """Return the memory of a job on a cell, in megabytes."""
    copied = {"update": update_bytes, "model": model_bytes}[memory.of]
    size = memory.copies * copied(cell)
    if memory.searches:
        size += checkpoint_bytes(cell, device)
    return memory.base + size // 10**6


COSTS: Mapping[str, tuple[Callable[[Any], float], Callable[[Any], float]]] = {
    "prepare_dataset": (no_cost, _bytes_of_dataset),
    "train_knowledge": (_work_of_knowledge, _bytes_of_knowledge),
    "train_model": (_work_of_training, model_bytes),
    "take_captured_model": (_work_of_training, model_bytes),
    "craft_parameters": (no_cost, model_bytes),
    "simulate_clients": (
        lambda cell: (
            cell.client.gradients_per_sample * _work_of_gradient(cell)
            + _work_of_drift(cell)
            + _work_between_rounds(cell)
        ),
        lambda cell: update_bytes(cell) + _bytes_of_truth(cell),
    ),
    "take_captured_update": (no_cost, update_bytes),
    "take_captured_truth": (_work_of_drift, _bytes_of_truth),
    "attack": (_attack_work, _bytes_of_reconstruction),
    "attack_shard": (
        lambda shard: _attack_work(shard.cell) / shard.count,
        lambda shard: _bytes_of_reconstruction(shard.cell) // shard.count,
    ),
    "draw_candidates": (
        no_cost,
        lambda draw: (
            draw.cell.client.victims * draw.number * prod(draw.cell.dataset.shape) * FLOAT_BYTES
        ),
    ),
    "audit_privacy": (_privacy_audit_work, no_cost),
    "infer_members": (
        lambda cell: cell.attack.sample_gradients(cell.client) * GRADIENT_FACTOR * _forward(cell),
        no_cost,
    ),
    "gather_shards": (no_cost, _bytes_of_reconstruction),
    "score_parameters": (_audit_work, no_cost),
    "search": (lambda part: part.search.trials * _attack_work(part.search.cell), no_cost),
}
"""Multiply-adds and bytes of a job of each stage; other stages are negligible."""

CALLS: Mapping[str, Callable[[Any], float]] = {
    "attack": _attack_calls,
    "attack_shard": lambda shard: _attack_calls(shard.cell),
    "audit_privacy": lambda cell: cell.attack.trials * (3 if cell.attack.takes_samples else 1),
    "search": lambda part: part.search.trials * _attack_calls(part.search.cell),
    "train_knowledge": lambda pretraining: pretraining.knowledge.batches,
}
"""Number of evaluations of a batch by a job of each stage."""
