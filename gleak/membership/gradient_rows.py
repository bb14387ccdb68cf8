"""Updates and gradients of single samples as vectors of all values that were sent."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from gleak.attacks.observation import Observation
from gleak.core.lazy import torch
from gleak.models.differentiation import sample_gradients

VALUES_AT_ONCE = 2**25
"""Largest number of gradient values that are computed at once: 128 MiB in single precision."""


def update_vectors(observed: Observation) -> torch.Tensor:
    """Return the gradient that each victim's update in one round shows; Shape (V, P).

    Values that were not sent are zero, and so are unknown ones (ends of open intervals).
    """
    scale = observed.protocol.update_scale
    parts = [
        (value[:, 0] * observed.sent[name][:, 0] if name in observed.sent else value[:, 0])
        .flatten(1)
        .nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
        / scale
        for name, value in observed.update.items()
    ]
    return torch.cat(parts, dim=1)


def sent_mask(observed: Observation) -> torch.Tensor | None:
    """Return the mask of the values that the first victim sent, Shape (P); None: all."""
    if not observed.sent:
        return None
    parts = [
        (observed.sent[name][0, 0] if name in observed.sent else torch.ones_like(value[0, 0]))
        .flatten()
        .to(value)
        for name, value in observed.update.items()
    ]
    return torch.cat(parts)


def gradient_rows(
    observed: Observation, inputs: torch.Tensor, labels: torch.Tensor
) -> Iterator[tuple[slice, torch.Tensor]]:
    """Yield slices of samples with their gradients, Shape (n, P), in the order of the update.

    Values that the first victim did not send are zero.

    Shapes: inputs (M, *shape), labels (M).
    """
    parameters = {name: observed.model.get_parameter(name).detach() for name in observed.update}
    mask = sent_mask(observed)
    size = sum(value.numel() for value in parameters.values())
    at_once = max(1, VALUES_AT_ONCE // (size + 8 * prod(inputs.shape[1:])))
    for start in range(0, len(inputs), at_once):
        part = slice(start, min(start + at_once, len(inputs)))
        _, found = sample_gradients(
            observed.model, parameters, inputs[part], labels[part], observed.protocol.loss
        )
        rows = torch.cat([value.detach().flatten(1) for value in found.values()], dim=1)
        yield part, rows if mask is None else rows.mul_(mask)


def all_rows(observed: Observation, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the gradients of all samples as `gradient_rows`; Shape (M, P)."""
    size = sum(value[0, 0].numel() for value in observed.update.values())
    whole = inputs.new_empty(len(inputs), size)
    for part, rows in gradient_rows(observed, inputs, labels):
        whole[part] = rows
    return whole
