"""``reconstruction.h5``: the samples that an attack reconstructed from each victim's update."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np

from gleak.artifacts.schema import array, array_fields, attribute
from gleak.artifacts.store import Artifact

UNKNOWN = -1
"""Label of a sample whose class an attack does not tell."""
TRACES = ("trace_iteration", "trace_objective", "snapshot_iteration", "snapshots")


@dataclass(frozen=True, kw_only=True, eq=False)
class Candidate:
    """Proposal of one attack of an ensemble for one victim, or why there is none.

    Args:
        attack: canonical spec of the attack.
        reason: why it was run, or why not, or its error.
        criterion: value by which the ensemble chooses, the least; in nats; NaN if there is none.
        evaluations: number of evaluations of the objective with its gradient that it took.
        inputs: Shape (N, *shape), values in [0, 1]; None if it proposed nothing.
        labels: Shape (N), class indices; -1 where unknown; None if it proposed nothing.
        chosen: True for the candidate that is the reconstruction.
    """

    attack: str
    reason: str
    criterion: float = math.nan
    evaluations: int = 0
    inputs: np.ndarray | None = field(default=None, repr=False)
    labels: np.ndarray | None = None
    chosen: bool = False


CANDIDATES = tuple(
    f"candidate_{name}"
    for name in (
        *("attack", "reason", "criterion", "evaluations"),
        *("place", "inputs", "labels", "chosen"),
    )
)
"""Fields of a `Reconstruction` that are those of candidates."""


@dataclass(frozen=True, kw_only=True)
class Reconstruction(Artifact):
    """Reconstructed samples and statistics of the search.

    Attacks that do not iterate leave the optional fields out.

    Args:
        inputs: Shape (V, N, C, H, W) or (V, N, F), values in [0, 1].
        labels: Shape (V, N), class indices; -1 where unknown.
        converged: Shape (V), True if the attack's own criterion was met for all samples.
        iterations: Shape (V), total number of iterations, restarts included.
        evaluations: Shape (V), number of evaluations of the objective with its gradient.
        restarts: Shape (V), number of restarts of a diverged search.
        objective: Shape (V), final value of the objective.
        trace_iteration: Shape (K), iterations at which the objective was recorded.
        trace_objective: Shape (V, K); after a victim stopped, its last value.
        snapshot_iteration: Shape (S), iterations at which snapshots were taken.
        snapshots: Shape (W, S, N, ...), the first W victims at those iterations, start first.
        mirrored: Shape of ``inputs``, the samples with the opposite sign, for attacks that recover
            samples up to their sign; used by metrics with a sign oracle.
        averaged_count: Shape (V, N), number of true samples averaged in each reconstructed one; 0
            where the attack found none. Such a sample is mid-grey and is not compared with the
            truth.
        clients: Shape (V, N), number of the client among those of a sum that each sample is said to
            come from, for attacks that tell clients apart.
        paired: True if each label is known to belong to the sample at the same position.
        rounds: Shape (V, N, E), estimated round of each sample in each epoch.
        embeddings: Shape (V, M, E), recovered inputs of the first dense layer.
        candidate_attack: Shape (V, C), attacks of an ensemble in the order in which they were
            considered; empty after the last of a victim. See `Candidate` for the meaning of these
            fields, and `with_candidates` for writing them.
        candidate_reason: Shape (V, C).
        candidate_criterion: Shape (V, C), NaN where there is none.
        candidate_evaluations: Shape (V, C).
        candidate_place: Shape (V, C), position of its samples among the P; -1 if it proposed none.
        candidate_inputs: Shape (V, P, N, ...), samples of those that proposed some; NaN after the
            last of a victim.
        candidate_labels: Shape (V, P, N), their labels; -1 where unknown.
        candidate_chosen: Shape (V), position of the chosen one among the C; -1 if none is.
    """

    format: ClassVar[str] = "gleak/reconstruction"
    version: ClassVar[int] = 2

    modality: str = attribute("image")
    paired: bool = attribute(False)
    inputs: np.ndarray = array("victim sample feature...", "intensity in [0, 1]")
    labels: np.ndarray = array("victim sample", "class index", "int")
    converged: np.ndarray = array("victim", "yes or no", "bool")
    iterations: np.ndarray | None = array("victim", "iterations", "int", optional=True)
    evaluations: np.ndarray | None = array("victim", "evaluations", "int", optional=True)
    restarts: np.ndarray | None = array("victim", "restarts", "int", optional=True)
    objective: np.ndarray | None = array("victim", "1", optional=True)
    trace_iteration: np.ndarray | None = array("record", "iterations", "int", optional=True)
    trace_objective: np.ndarray | None = array("victim record", "1", optional=True)
    snapshot_iteration: np.ndarray | None = array("snapshot", "iterations", "int", optional=True)
    snapshots: np.ndarray | None = array(
        "shown_victim snapshot sample feature...", "intensity in [0, 1]", optional=True
    )
    mirrored: np.ndarray | None = array(
        "victim sample feature...", "intensity in [0, 1]", optional=True
    )
    averaged_count: np.ndarray | None = array("victim sample", "samples", "int", optional=True)
    clients: np.ndarray | None = array(
        "victim sample", "number of the client", "int", optional=True
    )
    rounds: np.ndarray | None = array("victim sample epoch", "round", "int", optional=True)
    embeddings: np.ndarray | None = array("victim source embedding", "activation", optional=True)
    candidate_attack: np.ndarray | None = array("victim candidate", "spec", "text", optional=True)
    candidate_reason: np.ndarray | None = array("victim candidate", "clause", "text", optional=True)
    candidate_criterion: np.ndarray | None = array(
        "victim candidate", "nat", optional=True, finite=False
    )
    candidate_evaluations: np.ndarray | None = array(
        "victim candidate", "evaluations", "int", optional=True
    )
    candidate_place: np.ndarray | None = array("victim candidate", "proposal", "int", optional=True)
    candidate_inputs: np.ndarray | None = array(
        "victim proposal sample feature...", "intensity in [0, 1]", optional=True, finite=False
    )
    candidate_labels: np.ndarray | None = array(
        "victim proposal sample", "class index", "int", optional=True
    )
    candidate_chosen: np.ndarray | None = array("victim", "candidate", "int", optional=True)

    def with_candidates(self, listed: Sequence[Sequence[Candidate]]) -> Self:
        """Return the reconstruction with what an ensemble considered for each of its V victims.

        Samples of candidates have the shape of those of the reconstruction.
        """
        shape = (len(listed), max(map(len, listed), default=0))
        proposals = [sum(one.inputs is not None for one in candidates) for candidates in listed]
        samples = (len(listed), max(proposals, default=0), *self.inputs.shape[1:])
        columns = {
            "attack": np.full(shape, "", dtype=object),
            "reason": np.full(shape, "", dtype=object),
            "criterion": np.full(shape, np.nan),
            "evaluations": np.zeros(shape, dtype=int),
        }
        place = np.full(shape, -1)
        inputs = np.full(samples, np.nan, dtype=self.inputs.dtype)
        labels = np.full(samples[:3], UNKNOWN)
        chosen = np.full(len(listed), -1)
        for victim, candidates in enumerate(listed):
            for number, one in enumerate(candidates):
                for name, values in columns.items():
                    values[victim, number] = getattr(one, name)
                if one.chosen:
                    chosen[victim] = number
                if one.inputs is not None:
                    own = place[victim, number] = place[victim].max() + 1
                    inputs[victim, own] = one.inputs
                    labels[victim, own] = UNKNOWN if one.labels is None else one.labels
        others = {"place": place, "inputs": inputs, "labels": labels, "chosen": chosen}
        named: dict[str, Any] = {f"candidate_{k}": v for k, v in (columns | others).items()}
        return replace(self, **named)

    def candidates(self, victim: int) -> tuple[Candidate, ...]:
        """Return what an ensemble considered for a victim; empty if fields of it are missing."""
        stored = [getattr(self, name) for name in CANDIDATES]
        if any(values is None for values in stored):
            return ()
        attacks, reasons, criteria, evaluations, places, inputs, labels, chosen = (
            values[victim] for values in stored
        )
        return tuple(
            Candidate(
                attack=attack,
                reason=reasons[number],
                criterion=float(criteria[number]),
                evaluations=int(evaluations[number]),
                inputs=inputs[place] if place >= 0 else None,
                labels=labels[place] if place >= 0 else None,
                chosen=bool(number == chosen),
            )
            for number, (attack, place) in enumerate(zip(attacks, places, strict=True))
            if attack
        )


def join_victims(parts: Sequence[Reconstruction]) -> Reconstruction:
    """Join the results of victims, in order.

    Fields that are recorded for the first victims only (snapshots) are those of the first part.
    What only some of the parts recorded is left out, as `best` may run other attacks in each.
    """
    kept: dict[str, Any] = {}
    for name, schema in array_fields(Reconstruction).items():
        if schema.dims[0] == "victim":
            values = [getattr(part, name) for part in parts]
            alike = len({None if value is None else value.shape[1:] for value in values}) == 1
            everywhere = alike and values[0] is not None
            kept[name] = np.concatenate(values) if everywhere else None
    listed = [part.candidates(victim) for part in parts for victim in range(len(part.inputs))]
    traces = [part.trace_iteration for part in parts]
    if len({None if trace is None else tuple(trace) for trace in traces}) > 1:
        kept |= dict.fromkeys(TRACES)
    joined = replace(parts[0], **kept, paired=all(part.paired for part in parts))
    return joined.with_candidates(listed) if any(listed) else joined
