"""Assignment of reconstructed to true samples, since an update does not carry the batch order.

An assignment is an array of Shape (V, N): for each true sample the position of its assigned
reconstruction, each used at most once; -1 if there are fewer than N. It minimises the sum of a
cost by the Hungarian method, which favours even random reconstructions: compare with the blind
control.
"""

from __future__ import annotations

import math

import numpy as np

from gleak.artifacts.private import Private
from gleak.artifacts.reconstruction import Reconstruction
from gleak.core.lazy import scipy

UNASSIGNED = -1


def match_samples(truth: Private, found: Reconstruction) -> np.ndarray:
    """Assign reconstructed to true samples; Shape (V, N)."""
    return assign_samples(truth.inputs, found.inputs, allowed_pairs(truth.labels, found))


def allowed_pairs(labels: np.ndarray, found: Reconstruction) -> np.ndarray:
    """Compute which reconstructed samples may be assigned to which true ones; Shape (V, N, M).

    Samples that an attack reports as not found are assigned to none; if it assigns labels to
    samples, they match only true samples of the same label, Shape (V, N).
    """
    is_found = found_mask(found)
    allowed = np.broadcast_to(is_found[:, None], (*labels.shape, is_found.shape[1]))
    if found.paired:
        allowed = allowed & (labels[:, :, None] == found.labels[:, None])
    return allowed


def found_mask(found: Reconstruction) -> np.ndarray:
    """Return the mask of samples that the attack reports as found; Shape (V, M)."""
    if found.averaged_count is None:
        return np.ones(found.labels.shape, dtype=bool)
    return np.asarray(found.averaged_count > 0)


def assign_samples(
    truth: np.ndarray,
    estimate: np.ndarray,
    allowed: np.ndarray | None = None,
    mirrored: np.ndarray | None = None,
) -> np.ndarray:
    """Assign samples with the least sum of mean squared errors.

    Args:
        truth: Shape (V, N, *shape).
        estimate: Shape (V, M, *shape).
        allowed: Shape (V, N, M), pairs that may be assigned; None: all.
        mirrored: Shape (V, M, *shape), the estimate with the opposite sign: the smaller of both
            errors counts.

    Returns:
        Shape (V, N), positions among the M; -1 for none.
    """
    order = []
    for victim, true in enumerate(truth):
        costs = _squared_errors(true, estimate[victim])
        if mirrored is not None:
            costs = np.minimum(costs, _squared_errors(true, mirrored[victim]))
        order.append(assign(costs) if allowed is None else assign_allowed(costs, allowed[victim]))
    return np.stack(order)


def assign_labels(truth: np.ndarray, estimate: np.ndarray) -> np.ndarray:
    """Assign labels, Shapes (V, N) and (V, M), with as many equal pairs as possible; Shape (V, N).

    These are the intersection of the multisets.
    """
    return np.stack([assign(costs) for costs in truth[:, :, None] != estimate[:, None, :]])


def assign(costs: np.ndarray) -> np.ndarray:
    """Assign the samples of one victim by the costs of the pairs; Shape (N, M) to (N)."""
    rows, columns = scipy.optimize.linear_sum_assignment(costs)
    order = np.full(len(costs), UNASSIGNED)
    order[rows] = columns
    return order


def assign_allowed(costs: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """Assign as many samples of one victim as allowed, with the least cost among such assignments.

    Both arguments have Shape (N, M), the result Shape (N).
    """
    order = assign(np.where(allowed, costs, 1 + costs.sum()))
    assigned = order != UNASSIGNED
    assigned[assigned] = allowed[assigned, order[assigned]]
    return np.where(assigned, order, UNASSIGNED)


def gather(values: np.ndarray, order: np.ndarray, missing: float) -> np.ndarray:
    """Reorder values of Shape (V, M, ...) by an assignment; ``missing`` where it is -1.

    Returns:
        Shape (V, N, ...).
    """
    gathered = np.full((*order.shape, *values.shape[2:]), missing, dtype=values.dtype)
    victims, samples = np.nonzero(order != UNASSIGNED)
    gathered[victims, samples] = values[victims, order[victims, samples]]
    return gathered


def _squared_errors(truth: np.ndarray, estimate: np.ndarray) -> np.ndarray:
    """Compute sums over features, Shape (N, M); their optimum is that of the means.

    By a product of matrices, which for 1,600 photographs takes a tenth of the time of differences.
    """
    features = math.prod(truth.shape[1:])
    first, second = (
        samples.astype(float).reshape(len(samples), features) for samples in (truth, estimate)
    )
    norms = np.square(first).sum(1)[:, None] + np.square(second).sum(1)
    return np.asarray(np.maximum(norms - 2 * first @ second.T, 0))
