"""The problem that every tool is given: one victim's gradient, and its network."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from gleak.artifacts.private import Private
from gleak.attacks.observation import Observation
from gleak.attacks.run_attack import observe
from gleak.models.layers import Normalisation
from gleak.runtime.device import prepare_cpu

PART = 5
"""Samples of which a client computes the gradient at once; bounds memory."""
SECRET = "secret.h5"
Loss = Callable[[Any, Tensor], Tensor]
"""Function of what a network returns and of labels: their mean loss."""


class Client(Protocol):
    """What `Clients.send` is for one victim."""

    def __call__(self, network: nn.Module, loss: Loss, samples: slice = ...) -> None: ...


@dataclass
class Clients:
    """The victims of a cell, who train networks that a tool crafted.

    Args:
        private: their samples, read when the first gradient is asked for.
        seconds: CPU seconds spent, which are not the tool's.
    """

    private: Path
    seconds: float = 0.0

    def send(
        self, victim: int, network: nn.Module, loss: Loss, samples: slice = slice(None)
    ) -> None:
        """Leave the gradient of a victim's mean loss in the parameters of a network.

        Args:
            victim: its number.
            network: is given intensities in [0, 1]; its parameters may be frozen.
            loss: of what the network returns.
            samples: those of which it is the loss; of a sum, those of one client follow each other.
        """
        begin = time.process_time()
        truth = Private.read(self.private, victims=slice(victim, victim + 1))
        inputs = torch.from_numpy(truth.inputs[0, samples]).float()
        labels = torch.from_numpy(truth.labels[0, samples]).long()
        network.zero_grad()
        for some, their in zip(inputs.split(PART), labels.split(PART), strict=True):
            share = len(their) / len(labels)
            (share * loss(network(some), their)).backward()
        self.seconds += time.process_time() - begin


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
        clients: of which the update is the mean, with equal shares of the samples in order.
        client: leaves the gradient of the batch in a network that a tool crafted.
    """

    network: nn.Module
    mean: Tensor
    deviation: Tensor
    gradients: list[Tensor]
    labels: Tensor
    shape: tuple[int, ...]
    classes: int
    iterations: int
    clients: int
    client: Client

    def images(self, normalised: Tensor) -> Tensor:
        """Return normalised images as intensities in [0, 1]; Shape (N, C, H, W), in and out."""
        return (normalised.detach() * self.deviation + self.mean).clamp(0, 1)


Tool = Callable[[Problem], Tensor]
"""Function of a problem that returns images with intensities in [0, 1]; Shape (N, C, H, W)."""


def read_observation(cell: Path, parameters: Path, grants: Iterable[str], seed: int) -> Observation:
    """Read the update of a cell, what a tool is granted, and what gleak crafted."""
    prepare_cpu(threads=1)
    granted = {name: cell / "granted" / f"{name}.h5" for name in grants}
    secret = parameters.with_name(SECRET)
    return observe(
        cell / "update.h5",
        parameters,
        granted,
        secret_path=secret if secret.exists() else None,
        seed=seed,
        device="cpu",
    )


def problem_of(observation: Observation, victim: int, iterations: int, clients: Clients) -> Problem:
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
        clients=observation.protocol.clients or 1,
        client=partial(clients.send, victim),
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
