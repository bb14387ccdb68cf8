"""Engine of the searches: gradient matching and feature inversion (docs/design.md, "The engine").

`match` states the problem of an attack, and `solve` runs a `Search` on as many victims at a time as
fit into memory. They advance as one batch without influencing each other: each has a separate
random stream, optimizer state, stop and restarts. The engine has no access to the true samples.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.matching.chunks import ShortageError, in_chunks, part_of, victims_in_memory
from gleak.attacks.matching.gradient_matching import DrawnMatching, GradientMatching
from gleak.attacks.matching.gradients import repeated_steps
from gleak.attacks.matching.parts import Finish, Parts, Result
from gleak.attacks.matching.problem import CodedProblem, Problem
from gleak.attacks.matching.search import Records, Search, SearchState, kept_snapshots
from gleak.attacks.observation import Observation
from gleak.core.lazy import torch
from gleak.runtime.checkpointing import Part
from gleak.runtime.progress import Progress
from gleak.runtime.seeding import torch_stream

OTHER_LABEL = 1e9
"""Squared distance of samples whose labels differ, beyond any between samples."""
AVERAGED = ("inputs", "objective", "trace_objective", "snapshots")
SUMMED = ("iterations", "evaluations", "restarts")
CHOSEN = ("labels", "converged")
log = logging.getLogger(__name__)


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
    """Search for the samples of every victim of a problem, in micro-batches if memory is short.

    Args:
        problem: built from the observation.
        observation: of the same victims; provides random streams, and grants for the start.
        steps: number of the client's local steps that an evaluation repeats.

    Raises:
        GleakError: not even one victim fits into memory.
    """
    part, microbatches = observation.journal.part(), 1

    def work(rows: slice) -> tuple[SearchState, Records]:
        return _solve_chunk(problem.keep(rows), observation, rows, part)

    def divide() -> bool:
        nonlocal problem, microbatches
        divided = problem.in_microbatches(2 * microbatches)
        if divided is not None:
            problem, microbatches = divided, 2 * microbatches
            log.warning("out of memory: continuing with %d micro-batches a batch", microbatches)
        return divided is not None

    chunk = 0
    while not chunk:
        try:
            chunk = victims_in_memory(problem, steps)
        except ShortageError:
            if not divide():
                raise
    outcomes = in_chunks(observation.victims, chunk, work, part, divide)
    return _reconstruction(problem, outcomes)


def _solve_chunk(
    problem: Problem, observation: Observation, rows: slice, part: Part
) -> tuple[SearchState, Records]:
    """Search for the samples of these victims, with snapshots of the first few of all chunks.

    Each victim's first points come from its own random stream; logits are normal (DLG).
    """
    ids, iterations = observation.victim_ids[rows], problem.parts.iterations
    grants = problem.parts.start.grants
    granted = {name: observation.granted[name][rows].cpu() for name in grants}

    def draw(row: int, attempt: int) -> torch.Tensor:
        stream = torch_stream(observation.seed, "start", int(ids[row]), attempt)
        values = problem.draw(stream, {name: value[row] for name, value in granted.items()})
        count = problem.unknowns - problem.values
        logits = torch.randn(count, generator=stream, dtype=torch.float32)
        return torch.cat([values, logits.to(values)])

    most, _ = kept_snapshots(problem.shape, iterations)
    shown = max(0, most - rows.start) if part.journal.keeps_images else 0
    records = Records((len(ids), *problem.shape), iterations, shown)
    search = Search(problem, draw, records)
    with Progress(iterations, f"searching {len(ids)} victims") as progress:
        return search.run(progress, part_of(part, rows)), records


def _reconstruction(
    problem: Problem, outcomes: list[tuple[SearchState, Records]]
) -> Reconstruction:
    search_states, records = zip(*outcomes, strict=True)

    def gather(name: str) -> torch.Tensor:
        return torch.cat([getattr(search_state, name) for search_state in search_states]).cpu()

    points = torch.cat([search_state.points for search_state in search_states])
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
    """Convert samples to [0, 1] in single precision, with values that are not finite as 0."""
    values = inputs.nan_to_num().float()
    if finish == "cut":
        return values.clamp(0, 1).cpu().numpy()
    convert = stretched if finish == "stretched" else equalized
    return np.stack([[convert(sample) for sample in victim] for victim in values.cpu().numpy()])


def stretched(sample: np.ndarray) -> np.ndarray:
    """Divide a sample by its largest magnitude, then clip it to [0, 1] (ROG section 4.3)."""
    largest = np.abs(sample).max()
    return (sample / largest if largest else sample).clip(0, 1)


def equalized(sample: np.ndarray) -> np.ndarray:
    """Stretch a sample, then equalise the histogram that its channels share (ROG section 4.3)."""
    from skimage.exposure import equalize_hist

    equal: np.ndarray = equalize_hist(stretched(sample)).astype(sample.dtype)
    return equal


def joined_searches(found: Sequence[Reconstruction], result: Result) -> Reconstruction:
    """Return one result for each victim of all searches, with the cost of all.

    Either that of least objective (InvertGrad), or the mean (GradInversion), in which errors that
    differ cancel each other.
    """
    searches = [aligned(search, found[0]) for search in found]
    objectives = np.stack([np.asarray(search.objective) for search in searches])
    chosen = objectives.argmin(0)
    weights = np.eye(len(searches))[chosen].T
    if result == "mean":
        weights = np.full_like(objectives, 1 / len(searches))
        chosen = np.zeros_like(chosen)
    fields: dict[str, Any] = {}
    for name in (*AVERAGED, *SUMMED, *CHOSEN):
        values = np.stack([getattr(search, name) for search in searches])
        if name in AVERAGED:
            means = np.einsum("kv,kv...->v...", weights[:, : values.shape[1]], values)
            fields[name] = means.astype(values.dtype)
        else:
            fields[name] = values.sum(0) if name in SUMMED else values[chosen, range(len(chosen))]
    return replace(searches[0], **fields)


def aligned(found: Reconstruction, first: Reconstruction) -> Reconstruction:
    """Exchange samples of equal labels, and their snapshots, as another search orders them."""
    import scipy

    victims, count = found.labels.shape
    if count == 1:
        return found
    orders = []
    for victim in range(victims):
        theirs, ours = (one.inputs[victim].reshape(count, -1) for one in (first, found))
        differ = first.labels[victim][:, None] != found.labels[victim]
        distances = scipy.spatial.distance.cdist(theirs, ours, "sqeuclidean")
        orders.append(scipy.optimize.linear_sum_assignment(distances + OTHER_LABEL * differ)[1])
    order, rows = np.stack(orders), np.arange(victims)[:, None]
    snapshots: Any = found.snapshots
    shown = order[: len(snapshots), None].repeat(snapshots.shape[1], 1)
    positions = shown.reshape(*shown.shape, *[1] * (snapshots.ndim - shown.ndim))
    return replace(
        found,
        inputs=found.inputs[rows, order],
        labels=found.labels[rows, order],
        snapshots=np.take_along_axis(snapshots, positions, 2),
    )
