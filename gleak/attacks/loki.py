"""Samples of each client of a sum, by kernels that a server sets for each."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np

from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.imprint import in_bins
from gleak.attacks.isolated_rows import IsolatedRowsAttack
from gleak.attacks.matching.problem import mean_gradients
from gleak.attacks.observation import Observation
from gleak.clients.base import ClientSpec
from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.crafting.loki import layer_with_kernels
from gleak.data.base import DatasetSpec
from gleak.models.base import ModelSpec
from gleak.models.planted_kernels import PlantedKernels


@register("loki")
class LokiAttack(IsolatedRowsAttack):
    """Loki: samples of every client of a sum, in closed form, with the client of each.

    The parameters are crafted by `loki`. The gradient of the dense layer at the inputs of a group
    of kernels is that of one client alone, whatever others are in the sum; at the group's
    additional channel, which is 1, it is the gradient of the biases for this client. The rest is
    `imprint`, for each client: its samples are found if they are alone in a bin among its own.

    For clients that take several steps, plant a layer with sparse bins. The kernels of other groups
    are then no longer exactly zero after the first step, so that clients mix a little.
    """

    source = "Zhao et al. 2024 (Loki)"
    crafting: ClassVar[str | None] = "loki"

    def check(self, dataset: DatasetSpec, model: ModelSpec, client: ClientSpec) -> None:
        super().check(dataset, model, client)
        if not (isinstance(model, PlantedKernels) or model.user_defined):
            raise IncompatibleError(
                f"attack {self} reads samples off a planted layer behind kernels, which model "
                f"{model} does not have; use planted_kernels+model={model.name}"
            )

    def reads(self, model: torch.nn.Module, input_shape: tuple[int, ...]) -> frozenset[str] | None:
        """Return the name of the planted layer's weight."""
        name, _ = layer_with_kernels(model)
        return frozenset({f"{name}.enter.weight"})

    def reconstruct(self, observation: Observation) -> Reconstruction:
        name, planted = layer_with_kernels(observation.model)
        layer, clients = f"{name}.enter", observation.protocol.clients or 1
        observed = mean_gradients(observation)[f"{layer}.weight"]
        channels = planted.kernels.in_channels
        of_groups = observed.unflatten(2, (planted.groups, channels + 1, -1))
        of_clients = of_groups[:, :, :clients].transpose(1, 2).flatten(0, 1)
        weight, bias = of_clients[:, :, :channels].flatten(2), of_clients[:, :, channels].mean(2)
        samples = observation.batch_size // clients
        rows = in_bins(weight, bias, observation.secret)
        return of_sums(self.decide(observation, layer, rows, samples), clients)


def of_sums(found: Reconstruction, clients: int) -> Reconstruction:
    """Join the samples of each sum's clients, which follow each other, and name their clients."""
    counts = found.averaged_count
    assert counts is not None, "of choose"
    labels = found.labels.reshape(-1, clients * found.labels.shape[1])
    numbers = np.arange(clients).repeat(found.labels.shape[1])
    return replace(
        found,
        inputs=found.inputs.reshape(*labels.shape, *found.inputs.shape[2:]),
        labels=labels,
        converged=np.asarray(found.converged.reshape(-1, clients).all(1)),
        averaged_count=counts.reshape(labels.shape),
        clients=np.broadcast_to(numbers, labels.shape).copy(),
    )
