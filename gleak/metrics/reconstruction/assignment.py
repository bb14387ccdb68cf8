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
    """Assign reconstructed to true samples.

    Args:
        truth: of V victims, N samples each.
        found: reconstruction of the same victims, M samples each.

    Returns:
        Shape (V, N), positions among the M; -1 for none.
    """
    return assign_samples(truth.inputs, found.inputs, allowed_pairs(truth.labels, found))


def allowed_pairs(labels: np.ndarray, found: Reconstruction) -> np.ndarray:
    """Compute which reconstructed samples may be assigned to which true ones.

    Samples that an attack reports as not found are assigned to none; if it assigns labels to
    samples, they match only true samples of the same label.

    Args:
        labels: true labels, Shape (V, N).
        found: reconstruction of the same victims, M samples each.

    Returns:
        Boolean, Shape (V, N, M).
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
    truth: np.ndarray, estimate: np.ndarray, allowed: np.ndarray | None = None
) -> np.ndarray:
    """Assign samples with the least sum of mean squared errors.

    Args:
        truth: Shape (V, N, *shape).
        estimate: Shape (V, M, *shape).
        allowed: Shape (V, N, M), pairs that may be assigned; None: all.

    Returns:
        Shape (V, N), positions among the M; -1 for none.
    """
    every = np.ones((len(truth), truth.shape[1], estimate.shape[1]), dtype=bool)
    triples = zip(truth, estimate, every if allowed is None else allowed, strict=True)
    return np.stack(
        [assign_allowed(_squared_errors(true, found), may) for true, found, may in triples]
    )


def assign_up_to_sign(
    truth: np.ndarray, estimate: np.ndarray, mirrored: np.ndarray, allowed: np.ndarray
) -> np.ndarray:
    """Assign samples as `assign_samples` does, with the smaller error of the two signs.

    Args:
        truth: Shape (V, N, *shape).
        estimate: Shape (V, M, *shape).
        mirrored: Shape (V, M, *shape), the same samples with the opposite sign.
        allowed: Shape (V, N, M), pairs that may be assigned.

    Returns:
        Shape (V, N), positions among the M; -1 for none.
    """
    victims = zip(truth, estimate, mirrored, allowed, strict=True)
    return np.stack(
        [
            assign_allowed(
                np.minimum(_squared_errors(true, found), _squared_errors(true, other)), may
            )
            for true, found, other, may in victims
        ]
    )


def assign_labels(truth: np.ndarray, estimate: np.ndarray) -> np.ndarray:
    """Assign labels with as many equal pairs as possible: the intersection of the multisets.

    Args:
        truth: Shape (V, N).
        estimate: Shape (V, M).

    Returns:
        Shape (V, N), positions among the M; -1 for none.
    """
    pairs = zip(truth, estimate, strict=True)
    return np.stack([assign(true[:, None] != found[None, :]) for true, found in pairs])


def assign(costs: np.ndarray) -> np.ndarray:
    """Assign the samples of one victim.

    Args:
        costs: cost of each pair, Shape (N, M).

    Returns:
        Shape (N), positions among the M; -1 for none.
    """
    rows, columns = scipy.optimize.linear_sum_assignment(costs)
    order = np.full(len(costs), UNASSIGNED)
    order[rows] = columns
    return order


def assign_allowed(costs: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """Assign as many samples of one victim as allowed, with the least cost among such assignments.

    Args:
        costs: cost of each pair, Shape (N, M).
        allowed: Shape (N, M), pairs that may be assigned.

    Returns:
        Shape (N), positions among the M; -1 for none.
    """
    prohibitive = 1 + costs.sum()
    order = assign(np.where(allowed, costs, prohibitive))
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
    """Compute sums over features, Shape (N, M); their optimum is that of the means."""
    features = math.prod(truth.shape[1:])
    flat = (samples.reshape(len(samples), features) for samples in (truth, estimate))
    return np.asarray(scipy.spatial.distance.cdist(*flat, metric="sqeuclidean"))
