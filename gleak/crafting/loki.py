"""Loki: kernels of each client, with which the clients of a sum come apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.crafting.imprint import ImprintCrafting, expected_alone
from gleak.data.base import DatasetSpec
from gleak.defenses.base import DefenseSpec
from gleak.models.base import ModelSpec
from gleak.models.planted_kernels import PlantedKernels
from gleak.runtime.seeding import torch_stream

if TYPE_CHECKING:
    from gleak.models import layers


@register("loki")
class LokiCrafting(ImprintCrafting):
    """Loki: the server's part. Clients of a sum have gradients at inputs of their own.

    The server sends client number c kernels (model `planted_kernels`) of which those of group c
    pass the image unchanged and all others are zero, so that only the columns of this group in the
    dense layer behind have a gradient of the client. In a sum over clients each group of columns is
    then the gradient of one of them. The bins of the dense layer are those of `imprint` for every
    group; clients of the sum may use the same bins.

    The gradient of the dense layer's biases is the sum over all clients. The additional channel of
    each group, which is 1 at the client of the group and whose weights are zero, has it for each
    client: the weights' gradient there. So samples are found at their scale (ours).

    A sum over fewer clients than groups uses the first ones. Clients can compare what they were
    sent, and a client alone sees that most of its kernels are zero.

    ``noise`` hides the zeros: all clients get the same normal values in all kernels. The columns of
    a group then have a little of the gradients of other clients, too.
    """

    source = "Zhao et al. 2024 (Loki); bins by Fowl et al. 2022"

    noise: float = parameter(
        0.0,
        "standard deviation of values added to kernels, relative to those that pass the image",
        source="ours",
        ge=0,
    )

    def check(self, dataset: DatasetSpec, model: ModelSpec) -> None:
        if dataset.modality != "image":
            raise IncompatibleError(
                f"crafting {self} sets kernels of images, not of {dataset.modality} data"
            )
        if not (isinstance(model, PlantedKernels) or model.user_defined):
            raise IncompatibleError(
                f"crafting {self} needs kernels before a planted layer, for which model {model} "
                f"has no place; use planted_kernels, as in planted_kernels+model={model.name}"
            )

    def check_clients(self, model: ModelSpec, defense: DefenseSpec) -> None:
        if isinstance(model, PlantedKernels) and defense.clients_per_update > model.groups:
            raise IncompatibleError(
                f"crafting {self} gives each client kernels of its own, but model {model} has "
                f"{model.groups} groups of kernels for the {defense.clients_per_update} clients of "
                f"defense {defense}; use groups={defense.clients_per_update}, or fewer clients"
            )

    def check_network(self, network: torch.nn.Module, shape: tuple[int, ...], classes: int) -> None:
        """Check that the network has kernels before a planted layer."""
        layer_with_kernels(network)

    def expected_share(self, model: ModelSpec, samples: int, clients: int) -> float | None:
        return expected_alone(model.bins, samples) if isinstance(model, PlantedKernels) else None

    def craft_network(
        self, network: torch.nn.Module, shape: tuple[int, ...], classes: int, seed: int
    ) -> dict[str, np.ndarray]:
        """Set the layer's values, and the kernels of the first client.

        Returns:
            The secret, as of `imprint`.
        """
        name, planted = layer_with_kernels(network)
        channels, values = planted.kernels.in_channels, planted.leave.out_features
        measured = torch.zeros(planted.groups, channels + 1, values // channels)
        measured[:, :channels] = 1 / values
        with torch.no_grad():
            for part, each in kernels_of_clients(planted).items():
                network.get_parameter(f"{name}.kernels.{part}").copy_(each[0])
            kernels = planted.kernels.weight
            noise = torch.randn(kernels.shape, generator=torch_stream(seed, "crafting"))
            kernels.add_((self.noise * noise).to(kernels))
        return self.set_bins(planted, measured.flatten())

    def client_parameters(self, network: torch.nn.Module) -> dict[str, np.ndarray]:
        """Return the kernels and their biases for each client, with the noise of the network."""
        name, planted = layer_with_kernels(network)
        kernels = kernels_of_clients(planted)
        noise = planted.kernels.weight.detach().to(kernels["weight"]) - kernels["weight"][0]
        kernels["weight"] += noise
        return {f"{name}.kernels.{part}": each.numpy() for part, each in kernels.items()}


def kernels_of_clients(planted: layers.PlantedKernels) -> dict[str, torch.Tensor]:
    """Return the convolution's ``weight`` and ``bias`` for each client; Shape (clients, *shape).

    In a client's own group the first channels pass those of the image, and the last is 1.
    """
    groups, channels = planted.groups, planted.kernels.in_channels
    side, own = planted.kernels.kernel_size[0], torch.arange(groups)
    passing = torch.zeros(channels + 1, channels, side, side)
    passing[torch.arange(channels), torch.arange(channels), side // 2, side // 2] = 1
    weight = torch.zeros(groups, groups, *passing.shape)
    bias = torch.zeros(groups, groups, channels + 1)
    weight[own, own] = passing
    bias[own, own, -1] = 1
    return {"weight": weight.flatten(1, 2), "bias": bias.flatten(1)}


def layer_with_kernels(network: torch.nn.Module) -> tuple[str, layers.PlantedKernels]:
    """Return the planted layer behind kernels, and its name.

    Raises:
        IncompatibleError: the network has none.
    """
    from gleak.models import layers

    for name, layer in network.named_modules():
        if isinstance(layer, layers.PlantedKernels):
            return name, layer
    raise IncompatibleError(
        "it has no kernels before a planted layer; use model planted_kernels, in front of any other"
    )
