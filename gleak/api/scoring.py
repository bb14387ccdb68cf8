"""Scores of reconstructed samples against the true ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from gleak.api.attacking import AttackResult
from gleak.api.tensors import ArrayLike, Labels, checked_inputs, checked_labels
from gleak.api.user_network import modality_of, own_modes
from gleak.artifacts.private import UNKNOWN, Private
from gleak.artifacts.reconstruction import Reconstruction
from gleak.core.errors import ArtifactError, SpecError
from gleak.metrics.base import MetricUnavailable, metrics_of
from gleak.metrics.reconstruction.assignment import match_samples
from gleak.metrics.score import match_to_truth, measure


@dataclass(frozen=True, eq=False, repr=False)
class Scores(Mapping[str, float]):
    """Metrics of one attack by name: means over the true samples, without unmatched ones (NaN).

    Args:
        samples: for each metric its values; Shape (N) in the order of the true samples, or () for
            metrics of the whole update.
        unavailable: for each metric that could not be computed, the reason.
        assignment: for each true sample the position of the reconstructed one assigned to it, -1
            if none; Shape (N).
    """

    samples: Mapping[str, np.ndarray]
    unavailable: Mapping[str, str] = field(default_factory=dict)
    assignment: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=int))

    def __getitem__(self, name: str) -> float:
        if name in self.samples:
            values = self.samples[name]
            known = values[~np.isnan(values)]
            return float(known.mean()) if known.size else float("nan")
        reason = self.unavailable.get(name, f"no such metric; computed: {', '.join(self)}")
        raise KeyError(f"{name}: {reason}")

    def __iter__(self) -> Iterator[str]:
        return iter(self.samples)

    def __len__(self) -> int:
        return len(self.samples)

    def __repr__(self) -> str:
        width = max(map(len, [*self.samples, *self.unavailable]))
        values = [f"{name:<{width}}  {self[name]:.4g}" for name in self]
        missing = [f"{name:<{width}}  unavailable: {why}" for name, why in self.unavailable.items()]
        return "\n".join([*values, *missing])


@own_modes()
def score(
    found: AttackResult | ArrayLike, inputs: ArrayLike, labels: Labels | None = None
) -> Scores:
    """Compare reconstructed samples with the true ones.

    Each true sample is compared with the reconstructed sample that an optimal assignment gives it
    (the least sum of squared errors). The metrics are those of the workflow, see ``gleak list
    metric``; those that are not defined without files of the workflow are left out.

    Args:
        found: result of `gleak.attack`, or samples of any other attack, Shape (M, *shape).
        inputs: true samples, values in [0, 1]; Shape (N, *shape).
        labels: true labels, Shape (N); None: metrics of labels are left out, and an attack that
            assigns labels to samples is compared without them.

    Returns:
        Mean of each metric, by name; ``samples`` has the values of each sample, and ``unavailable``
        the reasons of those that could not be computed (LPIPS without its weights).

    Raises:
        ArtifactError: samples of another shape, values outside of [0, 1], or invalid labels.

    Example:
        >>> import gleak, torch
        >>> truth = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
        >>> scores = gleak.score(truth.flip(0), truth)
        >>> scores["mse"], scores.assignment.tolist()
        (0.0, [1, 0])
    """
    known = None if labels is None else checked_labels(labels)
    result = found if isinstance(found, AttackResult) else _unlabelled(found, known)
    reconstruction = result.reconstruction
    truth = checked_inputs(inputs, tuple(result.inputs.shape[1:]))
    if result.batch_size not in (None, len(truth)) and len(truth) != len(result.inputs):
        raise ArtifactError(
            f"inputs: {len(truth)} true samples, but the attack assumed a client with "
            f"batch_size={result.batch_size}; give all of them, or attack with their number"
        )
    if known is None:
        known = torch.full((len(truth),), UNKNOWN)
        reconstruction = replace(reconstruction, paired=False)
    else:
        known = checked_labels(known, len(truth))
    private = private_samples(truth, known)
    comparison = match_to_truth(private, reconstruction, result.cost)
    samples, unavailable = {}, {}
    for metric in (each for one in metrics_of("attack") for each in one.each(comparison)):
        try:
            samples[str(metric)] = measure(metric, comparison)[0]
        except MetricUnavailable as reason:
            unavailable[str(metric)] = str(reason)
    return Scores(samples, unavailable, match_samples(private, reconstruction)[0])


def private_samples(inputs: Tensor, labels: Tensor) -> Private:
    """Return the true samples of one victim; inputs (N, *shape) and labels (N)."""
    return Private(
        modality=modality_of(tuple(inputs.shape[1:])),
        inputs=inputs[None].numpy(),
        labels=labels[None].numpy(),
        indices=np.full((1, len(labels)), UNKNOWN),
    )


def _unlabelled(samples: ArrayLike, labels: Tensor | None) -> AttackResult:
    """Return samples as the result of an attack that finds no labels."""
    if labels is not None:
        raise SpecError("labels: the samples have no labels to compare with; leave labels out")
    inputs = checked_inputs(samples, name="found")
    reconstruction = Reconstruction(
        modality=modality_of(tuple(inputs.shape[1:])),
        inputs=inputs[None].numpy(),
        labels=np.full((1, len(inputs)), UNKNOWN),
        converged=np.ones(1, dtype=bool),
    )
    return AttackResult.of("", reconstruction, {})
