"""Results of several searches for the same victims, joined without a look at the truth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.matching.parts import Result

OTHER_LABEL = 1e9
"""Squared distance of samples whose labels differ, beyond any between samples."""
AVERAGED = ("inputs", "objective", "trace_objective", "snapshots")
SUMMED = ("iterations", "evaluations", "restarts")
CHOSEN = ("labels", "converged")


def joined(found: Sequence[Reconstruction], result: Result) -> Reconstruction:
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
