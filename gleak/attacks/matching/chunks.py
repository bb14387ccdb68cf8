"""Chunks of victims that fit into memory, and what to do where they do not."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, TypeVar

from gleak.attacks.matching.problem import Problem
from gleak.attacks.matching.search import Records, Search
from gleak.core.errors import GleakError
from gleak.core.lazy import torch
from gleak.runtime.checkpointing import Part
from gleak.runtime.device import free_memory

if TYPE_CHECKING:
    from gleak.runtime.virtual_gpu import VirtualGPU

CPU_BYTES = 4 * 2**30
GPU_SHARE = 0.85
"""Share of a GPU's free memory for a search; workspaces and gaps between blocks take some more."""
ACTIVATION_BYTES = 400
CAUTION = 10
"""Factor by which the memory of a search is at most above `rough_bytes`."""
MEASUREMENTS, CLOSE = 4, 0.03
"""Largest number of measurements, and the relative change up to which another is pointless."""
DROPPED = 3 / 4
"""Largest share of victims that are copied when the others are taken out of a batch."""
CPU_SHORTAGES = (
    "can't allocate memory",
    "not enough memory",
    "could not create a primitive",
    "could not create a memory",
    "could not execute a primitive",
)
"""Error texts of torch's allocator on a CPU, and of oneDNN, which does not mention memory."""
GPU_SHORTAGES = (
    "out of memory",
    "_STATUS_ALLOC_FAILED",
    "CUBLAS_STATUS_NOT_INITIALIZED",
    "CUDNN_STATUS_NOT_INITIALIZED",
    "CUSOLVER_STATUS_INTERNAL_ERROR",
    "valid cuDNN algorithm",
    "unable to find an engine",
)
"""Error texts of CUDA and its libraries, whose handles and workspaces torch does not allocate."""
log = logging.getLogger(__name__)
T = TypeVar("T")


class ShortageError(GleakError):
    """Not even one victim fits into a GPU."""


def shortage(error: BaseException) -> Literal["cpu", "gpu"] | None:
    """Return whose memory ran out, if that is what an error says."""
    text = str(error)
    if isinstance(error, torch.OutOfMemoryError) or any(sign in text for sign in GPU_SHORTAGES):
        return "gpu"
    known = isinstance(error, MemoryError) or any(sign in text for sign in CPU_SHORTAGES)
    return "cpu" if known else None


def victims_in_memory(problem: Problem, steps: int) -> int:
    """Compute the number of victims to advance at once.

    Their memory is measured, unless all of them take little by a rough estimate.

    Args:
        problem: of all victims.
        steps: number of the client's local steps that an evaluation repeats.

    Raises:
        ShortageError: one victim needs more than a GPU has.
    """
    victims, free = len(problem.like), free_memory(problem.device)
    budget = int(CPU_BYTES if free is None else GPU_SHARE * free)
    rough = rough_bytes(problem, steps)
    if CAUTION * victims * rough <= budget or (victims == 1 and free is None):
        return victims
    try:
        with measured(problem) as needed:
            fitting = most_within(budget, victims, needed)
            least = 0 if fitting else needed(1)
    except Exception as error:  # a user's network may raise errors of any kind
        log.info("the memory of a victim is estimated, as measuring it failed: %s", error)
        return max(1, int(budget // rough))
    if free is not None and least > free:
        raise ShortageError(
            f"not even one victim fits into the GPU: its search takes {least / 1e9:.3g} GB, and "
            f"{free / 1e9:.3g} GB are free; use a GPU with more memory, device=cpu, a smaller "
            "model or a smaller batch"
        )
    return max(1, fitting)


def rough_bytes(problem: Problem, steps: int) -> int:
    """Estimate the memory of one victim from the size of its state and gradients.

    Each local step that an evaluation repeats keeps separate parameters and activations.
    """
    parameters = sum(value[0].numel() for value in problem.observed.values())
    state = problem.parts.optimizer.bytes_per_unknown() + ACTIVATION_BYTES * steps
    return 16 * parameters * steps + problem.unknowns * state


def most_within(budget: int, victims: int, needed: Callable[[int], int]) -> int:
    """Return how many of some victims a number of bytes is enough for, 0 if not for one.

    Args:
        budget: in bytes.
        victims: number of victims.
        needed: bytes that some of them take; with their number it grows in proportion, or slower.
    """
    fitting = taken = 0
    count = min(victims, 2)
    for _ in range(MEASUREMENTS):
        total = needed(count)
        each = max(1.0, (total - taken) / (count - fitting))
        reached = min(victims, fitting + int((budget - taken) / each))
        if total <= budget:
            fitting, taken = count, total
        if reached in (fitting, victims) or abs(reached - count) <= CLOSE * count:
            return reached
        count = reached
    return fitting


@contextmanager
def measured(problem: Problem) -> Iterator[Callable[[int], int]]:
    """Yield a function that measures the bytes that a search for some of the victims takes.

    It is computed for shapes alone, without values, from a copy of the problem.
    """
    from gleak.runtime.virtual_gpu import VirtualGPU, alone, blank_copy

    with alone(VirtualGPU(sys.maxsize)) as gpu:
        blank = blank_copy(problem, kept=[problem.parts])
        yield lambda victims: _bytes_of_search(gpu, blank.keep(slice(0, victims)))


def _bytes_of_search(gpu: VirtualGPU, problem: Problem) -> int:
    """Measure the memory of an evaluation and a step beside the optimizer's whole state.

    Or that of taking finished victims out of the batch, if that is more.
    """
    gpu.begin()
    before, victims, parts = gpu.used, len(problem.like), problem.parts
    records = Records((victims, *problem.shape), parts.iterations, most_shown=0)
    search = Search(problem, lambda *_: problem.like.new_empty(problem.unknowns), records)
    kept = gpu.used - before
    points, optimizer = search.points, search.optimizer
    every = (*optimizer.state().values(), points, search.best.points)
    vectors = sum(value.nbytes for value in every if value.shape[-1:] == points.shape[-1:])
    growth = max(0, parts.optimizer.bytes_per_unknown() * points.numel() - vectors)
    search.step()
    working = gpu.peak - before - kept
    if victims > 1:  # the optimizer's tensors are copied one by one
        largest = max(value.nbytes for value in every) + growth
        unchanged, copied = gpu.used, problem.keep(search.running)
        working = max(working, int(DROPPED * (gpu.used - unchanged + largest)))
        del copied
    return kept + growth + working


def in_chunks(
    victims: int,
    chunk: int,
    work: Callable[[slice], T],
    part: Part,
    divide: Callable[[], bool] = bool,
) -> list[T]:
    """Process ranges of victims; where memory runs out, halve the range and try again.

    A resumed job keeps the ranges that were finished, and begins the last one again in smaller ones
    if it does not fit into the present memory.

    Args:
        victims: number of victims.
        chunk: largest size of a range that fits.
        work: function applied to each range, whose values are stored in its `part_of`.
        part: of the job's journal.
        divide: makes the work on a single victim take less memory of a GPU; False if it cannot.

    Raises:
        GleakError: a single victim does not fit.
    """
    done: list[T] = []
    stored = {name: value.tolist() for name, value in part.stored.items()}
    chunk, start = min(chunk, stored.get("chunk", chunk)), 0
    ends, begun = stored.get("ends", []), stored.get("begun", 0)
    while start < victims:
        stop = min(start + chunk, victims)
        if len(done) < len(ends):
            stop = ends[len(done)]
        elif begun != stop:
            part_of(part, slice(start, begun)).keep({})
            begun = stop
        part.keep({"chunk": chunk, "ends": ends, "begun": begun})
        rows = slice(start, stop)
        try:
            done.append(work(rows))
        except (MemoryError, RuntimeError) as error:
            short, said = shortage(error), str(error)
            if short is None:
                raise
        else:
            start, ends = stop, [*ends[: len(done) - 1], stop, *ends[len(done) :]]
            continue
        torch.cuda.empty_cache()  # not above, where the frames of the error hold tensors
        part_of(part, rows).keep({})
        ends = ends[: len(done)]
        if stop - start > 1:
            chunk = (stop - start) // 2
            log.warning("out of memory: continuing with %d victims at a time", chunk)
        elif short == "cpu" or not divide():
            raise GleakError(
                "not even one victim fits into memory; use a larger machine or a smaller model "
                f"({said})"
            )
    return done


def part_of(part: Part, rows: slice) -> Part:
    """Return the part of a range of victims."""
    return part.part(f"{rows.start}-{rows.stop}")
