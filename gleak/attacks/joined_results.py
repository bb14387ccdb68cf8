"""Join the results of two attacks on the same victims, without comparing them with the truth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from gleak.artifacts.reconstruction import Reconstruction, join_victims
from gleak.artifacts.schema import array_fields
from gleak.attacks.base import MID_GREY
from gleak.attacks.dlg import CPL
from gleak.attacks.matching.distances.cosine import Cosine
from gleak.attacks.observation import Observation
from gleak.core.lazy import torch

if TYPE_CHECKING:
    from gleak.attacks.matching.problem import Problem


def nearer(
    first: Reconstruction, later: Reconstruction, victims: np.ndarray, observation: Observation
) -> Reconstruction:
    """Return the later result of each victim, or the first one if it matches the gradient better.

    The cosine distance of gradients decides, where clients send the gradient of one sample: unlike
    the squared one, it does not depend on the length of the gradient, which clipping changes.

    Args:
        first: of all victims.
        later: of the victims that were attacked again.
        victims: their rows.
        observation: of these victims.
    """
    from gleak.attacks.matching.gradient_matching import GradientMatching

    if not observation.is_sample_gradient:
        return later
    parts = replace(CPL().parts(), distance=Cosine())
    problem = GradientMatching.of(observation, parts)
    before = _distances(problem, first.inputs[victims], first.labels[victims])
    kept = (before <= _distances(problem, later.inputs, later.labels)).nonzero()[0]
    inputs, labels = later.inputs.copy(), later.labels.copy()
    inputs[kept], labels[kept] = first.inputs[victims[kept]], first.labels[victims[kept]]
    return replace(later, inputs=inputs, labels=labels)


def _distances(problem: Problem, inputs: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Compute the relative distances of gradients to those observed; Shape (V)."""

    like = next(iter(problem.observed.values()))
    targets = torch.nn.functional.one_hot(torch.from_numpy(labels).long(), problem.classes).to(like)
    points = torch.from_numpy(inputs).flatten(1).to(like)
    return replace(problem, targets=targets).evaluate(points).distance.cpu().numpy()


def completed(first: Reconstruction, later: Reconstruction, victims: np.ndarray) -> Reconstruction:
    """Complete the results of some victims by those of another attack.

    Samples that the first attack did not find are mid-grey. They are taken from the later attack,
    which has found the others as well: those that resemble them most are left out. A victim without
    mid-grey samples, whose search did not converge, is replaced. A completed victim has not
    converged: the later attack's criterion is about all samples that it found.

    Args:
        first: of all victims.
        later: of the victims to complete.
        victims: their rows.
    """
    inputs, labels, converged = (x.copy() for x in (first.inputs, first.labels, first.converged))
    for row, victim in enumerate(victims):
        missing = _missing(inputs[victim])
        mixed = missing.any() and not missing.all()
        inputs[victim] = _completed(inputs[victim], later.inputs[row])
        labels[victim] = later.labels[row]
        converged[victim] = later.converged[row] and not mixed
    paired = first.paired and later.paired
    return Reconstruction(inputs=inputs, labels=labels, converged=converged, paired=paired)


def _completed(found: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return the samples of a victim, with those that were not found taken from others."""
    from scipy.optimize import linear_sum_assignment
    from scipy.spatial.distance import cdist

    missing = _missing(found)
    if missing.all() or not missing.any():
        return others
    known = found[~missing]
    distances = cdist(known.reshape(len(known), -1), others.reshape(len(others), -1))
    _, taken = linear_sum_assignment(distances)
    result = found.copy()
    result[missing] = np.delete(others, taken, axis=0)[: missing.sum()]
    return result


def lacks_samples(found: Reconstruction) -> np.ndarray:
    """Mark victims with samples that were not found, which are mid-grey; Shape (V)."""
    return np.array([_missing(inputs).any() for inputs in found.inputs])


def with_victims_of(
    first: Reconstruction, other: Reconstruction, victims: np.ndarray
) -> Reconstruction:
    """Return the results of all victims, some of them taken from another result of all."""
    fields = {name: getattr(first, name).copy() for name in ("inputs", "labels", "converged")}
    for name, values in fields.items():
        values[victims] = getattr(other, name)[victims]
    return Reconstruction(**fields, paired=first.paired and other.paired)


def _missing(found: np.ndarray) -> np.ndarray:
    """Mark the samples of a victim that were not found; Shape (N)."""
    return np.asarray((found == MID_GREY).reshape(len(found), -1).all(1))


def in_order(found: Sequence[Reconstruction], rows: Sequence[np.ndarray]) -> Reconstruction:
    """Join the results of groups of victims, without snapshots, which are of the first victims.

    Args:
        found: of each group.
        rows: of the victims of each group among all.

    Returns:
        The result itself if there is one group.
    """
    if len(found) == 1:
        return found[0]
    whole, order = join_victims(found), np.concatenate(rows).argsort()
    sorted_fields = {
        name: value[order]
        for name, schema in array_fields(Reconstruction).items()
        if schema.dims[0] == "victim" and (value := getattr(whole, name)) is not None
    }
    return replace(whole, **sorted_fields, snapshots=None, snapshot_iteration=None)
