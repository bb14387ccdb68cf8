"""Search for the samples of all victims: gradient matching, feature inversion (docs/design.md, 4).

All victims of a cell advance as one batch without influencing each other: each has its own random
stream, optimizer state, stopping point and restarts. The engine has no access to the true samples.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch
from torch import Tensor

from gleak.artifacts.reconstruction import Reconstruction
from gleak.core.errors import GleakError
from gleak.matching.gradient_matching import GradientMatching
from gleak.matching.gradients import repeated_steps
from gleak.matching.problem import Problem
from gleak.matching.search import SHOWN_VICTIMS, Draw, Records, Search, SearchState
from gleak.runtime.progress import Progress
from gleak.runtime.seeding import torch_stream

if TYPE_CHECKING:
    from gleak.matching.parts import Finish, Parts
    from gleak.observation import Observation
    from gleak.runtime.checkpointing import Part

CPU_BYTES = 4 * 2**30
GPU_SHARE = 0.6
ACTIVATION_BYTES = 400
SHORTAGES = ("can't allocate memory", "could not create a primitive", "could not create a memory")
"""Said by torch's allocator on a CPU, and by oneDNN, which does not call it memory."""
log = logging.getLogger(__name__)
T = TypeVar("T")


def match(observation: Observation, parts: Parts) -> Reconstruction:
    """Reconstruct every victim by matching gradients.

    Raises:
        IncompatibleError: the client or model is not one these parts can serve.
        GleakError: not even one victim fits into memory.
    """
    problem = parts.code.reparametrized(GradientMatching.of(observation, parts), observation)
    return solve(problem, observation, repeated_steps(observation, parts.client_model))


def solve(problem: Problem, observation: Observation, steps: int = 1) -> Reconstruction:
    """Search the samples of every victim that a problem asks for.

    Args:
        problem: reparametrized by the observation.
        observation: of the same victims; gives their random streams and what the start begins with.
        steps: of the client, that an evaluation repeats.

    Raises:
        GleakError: not even one victim fits into memory.
    """
    part = observation.journal.part()
    outcomes = in_chunks(
        observation.victims,
        victims_in_memory(problem, steps),
        lambda some: _solve_chunk(problem.keep(some), observation, some, part),
        part,
    )
    return _reconstruction(problem, outcomes)


def victims_in_memory(problem: Problem, steps: int) -> int:
    """How many victims to advance at once: the optimiser's state decides, then the gradients.

    Each of the client's steps that an evaluation repeats keeps its own parameters and activations.
    """
    parameters = sum(value[0].numel() for value in problem.observed.values())
    state = problem.parts.optimizer.bytes_per_unknown() + ACTIVATION_BYTES * steps
    needed = 16 * parameters * steps + problem.unknowns * state
    device = problem.device
    budget = GPU_SHARE * torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else CPU_BYTES
    return max(1, int(budget // needed))


def in_chunks(victims: int, chunk: int, work: Callable[[slice], T], part: Part) -> list[T]:
    """Do the work on ranges of victims; where memory runs out, halve the range and try again.

    Args:
        victims: how many there are.
        chunk: how many to begin with.
        work: on a range of them.
        part: of the job's journal; a job that goes on keeps to the ranges it had come to.

    Raises:
        GleakError: one victim alone does not fit.
    """
    done: list[T] = []
    start = 0
    chunk = int(part.stored.get("chunk", chunk))
    while start < victims:
        part.keep({"chunk": chunk})
        some = slice(start, min(start + chunk, victims))
        try:
            done.append(work(some))
        except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
            if not _out_of_memory(error):
                raise
            if chunk == 1:
                raise GleakError(
                    "memory does not hold even one victim; use a larger machine or a smaller model "
                    f"({error})"
                ) from error
            chunk = max(1, min(chunk, victims) // 2)
            log.warning("out of memory: going on with %d victims at a time", chunk)
        else:
            start = some.stop
    return done


def _out_of_memory(error: BaseException) -> bool:
    known = isinstance(error, torch.OutOfMemoryError | MemoryError)
    return known or any(sign in str(error) for sign in SHORTAGES)


def _solve_chunk(
    problem: Problem, observation: Observation, some: slice, part: Part
) -> tuple[SearchState, Records]:
    ids = observation.victim_ids[some]
    records = Records((len(ids), *problem.shape), problem.parts.iterations)
    search = Search(problem, _drawer(problem, observation, some), records)
    with Progress(problem.parts.iterations, f"searching {len(ids)} victims") as progress:
        return search.run(progress, part.part(f"{some.start}-{some.stop}")), records


def _drawer(problem: Problem, observation: Observation, some: slice) -> Draw:
    """First points from each victim's own stream; DLG starts label logits at normal values."""
    ids, start = observation.victim_ids[some], problem.parts.start
    granted = {name: observation.granted[name][some].cpu() for name in start.grants}

    def draw(row: int, attempt: int) -> Tensor:
        stream = torch_stream(observation.seed, "start", int(ids[row]), attempt)
        known = {name: value[row] for name, value in granted.items()}
        values = problem.draw(stream, known)
        logits = torch.randn(problem.unknowns - problem.values, generator=stream)
        return torch.cat([values, logits.to(problem.device)])

    return draw


def _reconstruction(
    problem: Problem, outcomes: list[tuple[SearchState, Records]]
) -> Reconstruction:
    ledgers, records = zip(*outcomes, strict=True)

    def gather(name: str) -> Tensor:
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
        snapshots=np.concatenate([np.stack(r.pictures, 1) for r in records])[:SHOWN_VICTIMS],
    )


def finished(inputs: Tensor, finish: Finish) -> np.ndarray:
    """Samples in [0, 1], values that are not finite as 0.

    Args:
        inputs: Shape (V, N, *sample shape).
        finish: how.
    """
    samples = inputs.nan_to_num().cpu().numpy()
    if finish == "cut":
        return samples.clip(0, 1)
    return np.stack([[FINISHES[finish](one) for one in victim] for victim in samples])


def stretched(sample: np.ndarray) -> np.ndarray:
    """Divided by its largest magnitude, so that it fills [0, 1] from above (ROG section 4.3)."""
    largest = np.abs(sample).max()
    return (sample / largest if largest else sample).clip(0, 1)


def equalized(sample: np.ndarray) -> np.ndarray:
    """Stretched, and then as many values at each intensity as at any other (ROG section 4.3).

    All channels have one histogram, which keeps the order of colours.
    """
    from skimage.exposure import equalize_hist

    equal: np.ndarray = equalize_hist(stretched(sample)).astype(sample.dtype)
    return equal


FINISHES: dict[Finish, Callable[[np.ndarray], np.ndarray]] = {
    "stretched": stretched,
    "equalized": equalized,
}
