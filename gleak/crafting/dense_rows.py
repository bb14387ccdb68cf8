"""Replacement of the rows of the dense layer that takes the samples."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch
from gleak.crafting.base import CraftingSpec
from gleak.data.base import DatasetSpec
from gleak.models.base import ModelSpec
from gleak.models.layer_search import layer_of_samples
from gleak.runtime.seeding import torch_stream

LEVELS = (-1.0, -2.0)
"""Outputs of the layer between which a ReLU makes no difference."""


@dataclass(frozen=True)
class RowsOfSamples:
    """Weights and biases of neurons, as if the layer took the samples; Shape (K, F) and (K)."""

    weight: torch.Tensor
    bias: torch.Tensor


class RowsCrafting(CraftingSpec):
    """Base class of servers that replace the rows of a dense layer whose inputs are the samples.

    A ReLU must follow it. The samples have values in [0, 1], as the intensities of images and the
    features of records. Rows are scaled to the mean norm of those that they replace, which
    changes no sample's activity, and all later layers are left as they are.
    """

    @abstractmethod
    def draw_rows(
        self, rows: int, shape: tuple[int, ...], random: torch.Generator
    ) -> RowsOfSamples:
        """Draw the rows of a layer that takes samples of a shape, at any scale."""

    def check(self, dataset: DatasetSpec, model: ModelSpec) -> None:
        if model.first_layer == "convolution":
            raise IncompatibleError(
                f"crafting {self} needs a first layer that is dense, but model {model} begins with "
                f"a convolution; use fc2, or planted+model={model.name}"
            )
        activation = getattr(model, "activation", "relu")
        if activation != "relu":
            raise IncompatibleError(
                f"crafting {self} needs a ReLU after the first dense layer, but model {model} has "
                f"activation={activation}; use activation=relu"
            )

    def check_network(self, network: torch.nn.Module, shape: tuple[int, ...], classes: int) -> None:
        """Check that a dense layer with a bias takes the samples, and that a ReLU follows it."""
        layer, _ = layer_of_samples(network, shape)
        if not cuts_negative(network, layer, shape):
            raise IncompatibleError(f"no ReLU follows layer {layer!r}, which takes the samples")

    def craft_network(
        self, network: torch.nn.Module, shape: tuple[int, ...], classes: int, seed: int
    ) -> dict[str, np.ndarray]:
        """Replace the layer's rows; the secret is empty."""
        self.check_network(network, shape, classes)
        name, scaling = layer_of_samples(network, shape)
        weight, bias = (network.get_parameter(f"{name}.{part}") for part in ("weight", "bias"))
        rows = self.draw_rows(len(bias), shape, torch_stream(seed, "crafting"))
        gain, offset = scaling.gain.to(weight), scaling.offset.to(weight)
        with torch.no_grad():
            crafted = rows.weight.to(weight) / gain
            shifted = rows.bias.to(bias) - crafted @ offset
            scale = weight.norm(dim=1).mean() / crafted.norm(dim=1, keepdim=True)
            weight.copy_(crafted * scale)
            bias.copy_(shifted * scale[:, 0])
        return {}


def cuts_negative(network: torch.nn.Module, layer: str, shape: tuple[int, ...]) -> bool:
    """Return True if the logits do not depend on a layer's outputs as long as they are negative."""
    like = next(network.parameters())
    probe = torch.full((1, *shape), 0.5).to(like)
    logits = []
    for level in LEVELS:

        def replaced(
            _: torch.nn.Module, __: object, output: torch.Tensor, value: float = level
        ) -> torch.Tensor:
            return torch.full_like(output, value)

        with (
            torch.no_grad(),
            network.get_submodule(layer).register_forward_hook(replaced),
        ):
            logits.append(network(probe.clone()))
    return torch.equal(*logits)
