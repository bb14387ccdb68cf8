"""Engine of the searches: gradient matching and feature inversion (docs/design.md, 4).

All victims of a cell advance as one batch without influencing each other: each has a separate
random stream, optimizer state, stop and restarts. The engine has no access to the true samples.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.matching.drawn_matching import DrawnMatching
from gleak.attacks.matching.gradient_matching import GradientMatching
from gleak.attacks.matching.gradients import repeated_steps
from gleak.attacks.matching.problem import Problem
from gleak.attacks.matching.search import Draw, Records, Search, SearchState, kept_snapshots
from gleak.core.errors import GleakError
from gleak.core.lazy import torch
from gleak.runtime.device import free_memory
from gleak.runtime.progress import Progress
from gleak.runtime.seeding import torch_stream

if TYPE_CHECKING:
    from gleak.attacks.matching.parts import Draws, Finish, Parts
    from gleak.attacks.observation import Observation
    from gleak.runtime.checkpointing import Journal, Part

CPU_BYTES = 4 * 2**30
GPU_SHARE = 0.6
ACTIVATION_BYTES = 400
SHORTAGES = ("can't allocate memory", "could not create a primitive", "could not create a memory")
"""Error texts of torch's allocator on a CPU, and of oneDNN, which does not mention memory."""
STATED: dict[Draws, type[GradientMatching]] = {
    "mean": GradientMatching,
    "searched": DrawnMatching,
}
log = logging.getLogger(__name__)
T = TypeVar("T")


def match(observation: Observation, parts: Parts) -> Reconstruction:
    """Reconstruct every victim by matching gradients.

    Raises:
        IncompatibleError: the client or model does not fit these components.
        GleakError: not even one victim fits into memory.
    """
    stated = STATED[parts.draws].of(observation, parts)
    problem = parts.code.reparametrized(stated, observation)
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
