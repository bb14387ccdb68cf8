"""Engine of the searches: gradient matching and feature inversion (docs/design.md, 4).

All victims of a cell advance as one batch without influencing each other: each has a separate
random stream, optimizer state, stop and restarts. The engine has no access to the true samples.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.matching.gradient_matching import DrawnMatching, GradientMatching
from gleak.attacks.matching.gradients import repeated_steps
from gleak.attacks.matching.parts import Finish, Parts, Result
from gleak.attacks.matching.problem import CodedProblem, Problem
from gleak.attacks.matching.search import Draw, Records, Search, SearchState, kept_snapshots
from gleak.attacks.observation import Observation
from gleak.core.errors import GleakError
from gleak.core.lazy import torch
from gleak.runtime.checkpointing import Journal, Part
from gleak.runtime.device import free_memory
from gleak.runtime.progress import Progress
from gleak.runtime.seeding import torch_stream

CPU_BYTES = 4 * 2**30
GPU_SHARE = 0.6
ACTIVATION_BYTES = 400
SHORTAGES = ("can't allocate memory", "could not create a primitive", "could not create a memory")
"""Error texts of torch's allocator on a CPU, and of oneDNN, which does not mention memory."""
OTHER_LABEL = 1e9
"""Squared distance of samples whose labels differ, beyond any between samples."""
AVERAGED = ("inputs", "objective", "trace_objective", "snapshots")
SUMMED = ("iterations", "evaluations", "restarts")
CHOSEN = ("labels", "converged")
log = logging.getLogger(__name__)
T = TypeVar("T")


def match(observation: Observation, parts: Parts) -> Reconstruction:
    """Reconstruct every victim by matching gradients.

    Raises:
        IncompatibleError: the client or model does not fit these components.
        GleakError: not even one victim fits into memory.
    """
    kind = DrawnMatching if parts.draws == "searched" else GradientMatching
    problem: Problem = kind.of(observation, parts)
    coder = parts.code.coder(observation)
    if coder is not None:
        problem = CodedProblem.of(problem, coder)
    return solve(problem, observation, repeated_steps(observation, parts.client_model))


def solve(problem: Problem, observation: Observation, steps: int = 1) -> Reconstruction:
    """Search for the samples of every victim of a problem.

    Args:
        problem: built from the observation.
        observation: of the same victims; provides random streams, and grants for the start.
        steps: number of the client's local steps that an evaluation repeats.

    Raises:
        GleakError: not even one victim fits into memory.
    """
    part = observation.journal.part()
    work = _Work(problem, observation, part)
    chunk = victims_in_memory(problem, steps)
    outcomes = in_chunks(observation.victims, chunk, work, part, divide=work.divide)
    return _reconstruction(problem, outcomes)


class _Work:
    """Search for the samples of a range of victims.

    Args:
        problem: of all victims.
        observation: of the same victims.
        part: of the job's journal.
    """

    def __init__(self, problem: Problem, observation: Observation, part: Part) -> None:
        self.problem, self.observation, self.part = problem, observation, part
        self.microbatches = 1

    def __call__(self, rows: slice) -> tuple[SearchState, Records]:
        return _solve_chunk(self.problem.keep(rows), self.observation, rows, self.part)

    def divide(self) -> bool:
        """Divide batches into twice as many micro-batches; return False if this cannot be done."""
        divided = self.problem.in_microbatches(2 * self.microbatches)
        if divided is None:
            return False
        self.problem, self.microbatches = divided, 2 * self.microbatches
        log.warning("out of memory: continuing with %d micro-batches a batch", self.microbatches)
        return True


def victims_in_memory(problem: Problem, steps: int) -> int:
    """Compute the number of victims to advance at once, from optimizer state and gradients.

    Each local step that an evaluation repeats keeps separate parameters and activations.
    """
    parameters = sum(value[0].numel() for value in problem.observed.values())
    state = problem.parts.optimizer.bytes_per_unknown() + ACTIVATION_BYTES * steps
    needed = 16 * parameters * steps + problem.unknowns * state
    free = free_memory(problem.device)
    budget = CPU_BYTES if free is None else GPU_SHARE * free
    return max(1, int(budget // needed))


def undivided() -> bool:
    """Divide nothing, since the work has no smaller form."""
    return False


def in_chunks(
    victims: int,
    chunk: int,
    work: Callable[[slice], T],
    part: Part,
    divide: Callable[[], bool] = undivided,
) -> list[T]:
    """Process ranges of victims; where memory runs out, halve the range and try again.

    Args:
        victims: number of victims.
        chunk: first size of a range.
        work: function applied to each range.
        part: of the job's journal; a resumed job keeps the size of its ranges.
        divide: makes the work on a single victim take less memory of a GPU; returns False if it
            cannot.

    Raises:
        GleakError: a single victim does not fit.
    """
    done: list[T] = []
    start = 0
    chunk = int(part.stored.get("chunk", chunk))
    while start < victims:
        part.keep({"chunk": chunk})
        rows = slice(start, min(start + chunk, victims))
        try:
            done.append(work(rows))
        except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
            if not _out_of_memory(error):
                raise
            if chunk == 1 and isinstance(error, torch.OutOfMemoryError) and divide():
                continue
            if chunk == 1:
                raise GleakError(
                    "not even one victim fits into memory; use a larger machine or a smaller model "
                    f"({error})"
                ) from error
            chunk = max(1, min(chunk, victims) // 2)
            log.warning("out of memory: continuing with %d victims at a time", chunk)
        else:
            start = rows.stop
    return done


def _out_of_memory(error: BaseException) -> bool:
    known = isinstance(error, torch.OutOfMemoryError | MemoryError)
    return known or any(sign in str(error) for sign in SHORTAGES)


def _solve_chunk(
    problem: Problem, observation: Observation, rows: slice, part: Part
) -> tuple[SearchState, Records]:
    ids = observation.victim_ids[rows]
    records = _records(problem, rows, part.journal)
    search = Search(problem, _drawer(problem, observation, rows), records)
    with Progress(problem.parts.iterations, f"searching {len(ids)} victims") as progress:
        return search.run(progress, part.part(f"{rows.start}-{rows.stop}")), records


def _records(problem: Problem, rows: slice, journal: Journal) -> Records:
    """Return empty records of these victims, with snapshots of the first few of all chunks."""
    most, _ = kept_snapshots(problem.shape, problem.parts.iterations)
    shown = max(0, most - rows.start) if journal.keeps_images else 0
    shape = (rows.stop - rows.start, *problem.shape)
    return Records(shape, problem.parts.iterations, shown)


def _drawer(problem: Problem, observation: Observation, rows: slice) -> Draw:
    """Return the function that draws each victim's first points; logits are normal (DLG)."""
    ids, start = observation.victim_ids[rows], problem.parts.start
    granted = {name: observation.granted[name][rows].cpu() for name in start.grants}

    def draw(row: int, attempt: int) -> torch.Tensor:
        stream = torch_stream(observation.seed, "start", int(ids[row]), attempt)
        known = {name: value[row] for name, value in granted.items()}
        values = problem.draw(stream, known)
        logits = torch.randn(
            problem.unknowns - problem.values, generator=stream, dtype=torch.float32
        )
        return torch.cat([values, logits.to(values)])

    return draw


def _reconstruction(
    problem: Problem, outcomes: list[tuple[SearchState, Records]]
) -> Reconstruction:
    ledgers, records = zip(*outcomes, strict=True)

    def gather(name: str) -> torch.Tensor:
        return torch.cat([getattr(ledger, name) for ledger in ledgers]).cpu()

    points = torch.cat([ledger.points for ledger in ledgers])
    every = problem.parts.optimizer.evaluations_per_iteration
    finite = gather("objective").double().nan_to_num(posinf=torch.finfo(torch.float64).max)
    return Reconstruction(
        inputs=finished(problem.inputs(points).detach(), problem.parts.finish),
        labels=problem.soft_labels(points).argmax(2).cpu().numpy(),
        converged=gather("converged").numpy(),
        iterations=((gather("evaluations") - 1) / every).ceil().long().numpy(),
        evaluations=gather("evaluations").numpy(),
        restarts=gather("restarts").numpy(),
        objective=finite.numpy(),
        trace_iteration=np.array(records[0].iterations),
        trace_objective=np.concatenate([np.stack(r.objective, 1) for r in records]),
        snapshot_iteration=np.array(records[0].moments),
        snapshots=np.concatenate([np.stack(r.pictures, 1) for r in records]),
    )


def finished(inputs: torch.Tensor, finish: Finish) -> np.ndarray:
    """Convert samples to [0, 1] in single precision, with values that are not finite as 0.

    Args:
        inputs: Shape (V, N, *sample shape).
        finish: method of conversion.
    """
    values = inputs.nan_to_num().float()
    if finish == "cut":
        return values.clamp(0, 1).cpu().numpy()
    samples = values.cpu().numpy()
    return np.stack([[FINISHES[finish](one) for one in victim] for victim in samples])


def stretched(sample: np.ndarray) -> np.ndarray:
    """Divide a sample by its largest magnitude, then clip it to [0, 1] (ROG section 4.3)."""
    largest = np.abs(sample).max()
    return (sample / largest if largest else sample).clip(0, 1)


def equalized(sample: np.ndarray) -> np.ndarray:
    """Stretch a sample, then equalise its histogram (ROG section 4.3).

    All channels share one histogram, which preserves the order of colours.
    """
    from skimage.exposure import equalize_hist

    equal: np.ndarray = equalize_hist(stretched(sample)).astype(sample.dtype)
    return equal


FINISHES: dict[Finish, Callable[[np.ndarray], np.ndarray]] = {
    "stretched": stretched,
    "equalized": equalized,
}


def joined_searches(found: Sequence[Reconstruction], result: Result) -> Reconstruction:
    """Return one result for each victim, with the cost of all searches.

    Args:
        found: of the same V victims, each with its objective.
        result: "lowest": of each victim the search of least objective (InvertGrad); "mean": the
            mean over searches (GradInversion), in which errors that differ cancel each other.
    """
    searches = [aligned(one, found[0]) for one in found]
    weights = _weights(_of_all(searches, "objective"), result)
    chosen = weights.argmax(0)
    fields: dict[str, Any] = {name: _mean(_of_all(searches, name), weights) for name in AVERAGED}
    fields |= {name: _of_all(searches, name).sum(0) for name in SUMMED}
    fields |= {name: _of_all(searches, name)[chosen, range(len(chosen))] for name in CHOSEN}
    return replace(searches[0], **fields)


def _of_all(searches: Sequence[Reconstruction], name: str) -> np.ndarray:
    """Return an array of each of K searches; Shape (K, V, ...)."""
    return np.stack([getattr(one, name) for one in searches])


def _mean(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Compute the mean over searches of the first W victims; Shape (K, W, ...) to (W, ...)."""
    means = np.einsum("kv,kv...->v...", weights[:, : values.shape[1]], values)
    return means.astype(values.dtype)


def _weights(objectives: np.ndarray, result: Result) -> np.ndarray:
    """Return the weight of each search in each victim's result; Shape (K, V), in and out."""
    if result == "mean":
        return np.full_like(objectives, 1 / len(objectives))
    weights: np.ndarray = np.eye(len(objectives))[objectives.argmin(0)].T
    return weights


def aligned(found: Reconstruction, first: Reconstruction) -> Reconstruction:
    """Bring samples into the order of another search, which exchanges those of equal labels.

    Args:
        found: of the victims, with snapshots of the first of them.
        first: of the same victims; its samples have the order.
    """
    if found.labels.shape[1] == 1:
        return found
    order = np.stack([_order(found, first, victim) for victim in range(len(found.labels))])
    rows = np.arange(len(order))[:, None]
    snapshots: Any = found.snapshots
    shown = order[: len(snapshots), None].repeat(snapshots.shape[1], 1)
    positions = shown.reshape(*shown.shape, *[1] * (snapshots.ndim - shown.ndim))
    return replace(
        found,
        inputs=found.inputs[rows, order],
        labels=found.labels[rows, order],
        snapshots=np.take_along_axis(snapshots, positions, 2),
    )


def _order(found: Reconstruction, first: Reconstruction, victim: int) -> np.ndarray:
    """Return the positions of a victim's samples in the order of the first search; Shape (N)."""
    from scipy.optimize import linear_sum_assignment
    from scipy.spatial.distance import cdist

    count = len(found.labels[victim])
    theirs, ours = (one.inputs[victim].reshape(count, -1) for one in (first, found))
    differ = first.labels[victim][:, None] != found.labels[victim]
    distances = cdist(theirs, ours, "sqeuclidean") + OTHER_LABEL * differ
    return np.asarray(linear_sum_assignment(distances)[1])
