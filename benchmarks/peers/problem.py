"""The problem that every tool is given: one victim's gradient, and its network."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from gleak.attacks.run_attack import observe
from gleak.models.layers import Normalisation
from gleak.observation import Observation
from gleak.runtime.device import prepare_cpu


@dataclass(frozen=True)
class Problem:
    """What a public tool is given; it never sees the samples.

    Args:
        network: without its layer of normalisation, so that a tool searches in normalised values.
        mean: that the network expects to be subtracted; Shape (C, 1, 1).
        deviation: by which it expects images to be divided; Shape (C, 1, 1).
        gradients: of the mean loss, in the order of ``network.parameters()``.
        labels: of the batch; Shape (N).
        shape: of a sample.
        classes: outputs of the network.
        iterations: budget.
    """

    network: nn.Module
    mean: Tensor
    deviation: Tensor
    gradients: list[Tensor]
    labels: Tensor
    shape: tuple[int, ...]
    classes: int
    iterations: int

    def images(self, normalised: Tensor) -> Tensor:
        """Return normalised images as intensities in [0, 1]; Shape (N, C, H, W), in and out."""
        return (normalised.detach() * self.deviation + self.mean).clamp(0, 1)


Tool = Callable[[Problem], Tensor]
"""Function of a problem that returns images with intensities in [0, 1]; Shape (N, C, H, W)."""


def read_observation(cell: Path, parameters: Path, grants: Iterable[str], seed: int) -> Observation:
    """Read the update of a cell, and what a tool is granted."""
    prepare_cpu(threads=1)
    granted = {name: cell / "granted" / f"{name}.h5" for name in grants}
    return observe(cell / "update.h5", parameters, granted, seed=seed, device="cpu")


def problem_of(observation: Observation, victim: int, iterations: int) -> Problem:
    """Return the problem of one victim."""
    one = observation.of_victim(victim)
    network, mean, deviation = _without_normalisation(one.model)
    return Problem(
        network=network,
        mean=mean,
        deviation=deviation,
        gradients=[one.update[name][0, 0] for name, _ in one.model.named_parameters()],
        labels=one.granted["labels"][0].long(),
        shape=one.input_shape,
        classes=one.classes,
        iterations=iterations,
    )


def _without_normalisation(network: nn.Module) -> tuple[nn.Module, Tensor, Tensor]:
    """Replace the layer of normalisation by the identity, and return its constants."""
    network.requires_grad_(requires_grad=True)
    for parent in list(network.modules()):
        for name, layer in parent.named_children():
            if isinstance(layer, Normalisation):
                setattr(parent, name, nn.Identity())
                return network, layer.mean, layer.deviation
    return network, torch.zeros(1, 1, 1), torch.ones(1, 1, 1)
