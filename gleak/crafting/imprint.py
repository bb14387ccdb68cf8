"""Imprint: a planted layer whose bins separate samples by their brightness."""

from __future__ import annotations

from statistics import NormalDist
from typing import Any

import numpy as np

from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.crafting.base import CraftingSpec
from gleak.data.base import DatasetSpec
from gleak.models.base import ModelSpec
from gleak.models.planted import Planted
from gleak.runtime.seeding import torch_stream


@register("imprint")
class ImprintCrafting(CraftingSpec):
    """Robbing the Fed: the server's part. A sample alone in its bin can be read off the update.

    All rows of the planted layer (model `planted`) measure the same, the mean of a sample's values,
    h(x). Their biases are minus the edges c_1 < c_2 < ... between which h falls with equal
    probability, if it is normal. The columns of the second layer are equal, so that a sample has
    the same gradient at all neurons that it activates. With cumulative bins (ReLU) it activates all
    whose edge is below h(x): the difference of neighbouring rows is the gradient of the samples
    between two edges. With sparse bins (``activation=hardtanh``) a neuron has a gradient only for
    samples between its edge and the next, so that bins stay apart in several local steps.

    Mean and deviation of h are those that a server knows from public images; the default was
    measured on 4,000 training images of CIFAR-10. No victim's sample is used. The first edge is 0,
    below which no sample falls, and the last one of sparse bins is 1.

    ``strength`` bounds what the layer adds to the values of a sample, so that the model keeps its
    accuracy. Updates of several steps are differences of weights, in which it sets the size of the
    gradient relative to the weights (`gleak.models.layers.CEILING`).

    ``noise`` hides that rows are equal: each weight is multiplied by 1 plus a normal value of this
    deviation, minus the row's mean of these values, so that rows still measure brightness, with an
    error that makes some samples change their order in the bins.
    """

    source = "Fowl et al. 2022 (Robbing the Fed)"

    mean: float = parameter(
        0.475,
        "mean of the samples' brightness",
        unit="intensity",
        source="ours: CIFAR-10, train split",
    )
    deviation: float = parameter(
        0.127,
        "standard deviation of the samples' brightness",
        unit="intensity",
        source="ours: CIFAR-10, train split",
        gt=0,
    )
    strength: float = parameter(
        0.01, "most that is added to a value of a sample", unit="intensity", source="ours", gt=0
    )
    noise: float = parameter(
        0.0, "noise in the rows relative to their weights, to hide them", source="ours", ge=0
    )

    def check(self, dataset: DatasetSpec, model: ModelSpec) -> None:
        if dataset.modality != "image":
            raise IncompatibleError(
                f"crafting {self} measures the brightness of images, not {dataset.modality} data"
            )
        if not (isinstance(model, Planted) or model.user_defined):
            raise IncompatibleError(
                f"crafting {self} needs a planted layer, for which model {model} has no place; use "
                f"model planted, as in planted+model={model.name}"
            )

    def check_network(self, network: torch.nn.Module, shape: tuple[int, ...], classes: int) -> None:
        """Check that the network has a planted layer."""
        planted_layer(network)

    def expected_share(self, model: ModelSpec, samples: int, clients: int) -> float | None:
        return expected_alone(model.bins, samples * clients) if isinstance(model, Planted) else None

    def craft_network(
        self, network: torch.nn.Module, shape: tuple[int, ...], classes: int, seed: int
    ) -> dict[str, np.ndarray]:
        """Set the planted layer's values.

        Returns:
            The secret: ``edges``, Shape (K + 1), from 0 to 1, and ``sparse``, Shape (1).
        """
        planted: Any = network.get_submodule(planted_layer(network))
        bins, values = planted.enter.weight.shape
        noise = torch.randn(bins, values, generator=torch_stream(seed, "crafting"))
        factors = 1 + self.noise * (noise - noise.mean(1, keepdim=True))
        return self.set_bins(planted, factors / values)

    def set_bins(self, planted: Any, measured: torch.Tensor) -> dict[str, np.ndarray]:
        """Set the bins of a planted layer; returns the secret.

        Args:
            planted: a `gleak.models.layers.PlantedLayer`.
            measured: weights with which its inputs give h(x); Shape (inputs), or (bins, inputs).
        """
        from gleak.models.layers import CEILING

        bins = planted.enter.out_features
        edges = self.edges(bins)
        widths = np.diff(edges)
        scales = CEILING / widths if planted.is_sparse else np.ones(bins)
        highest = CEILING * bins if planted.is_sparse else float((1 - edges[:-1]).sum())
        with torch.no_grad():
            gains = torch.from_numpy(scales).to(planted.enter.weight)
            planted.enter.weight.copy_(gains[:, None] * measured.to(gains))
            planted.enter.bias.copy_(torch.from_numpy(-scales * edges[:-1]))
            planted.leave.weight.fill_(self.strength / highest)
            planted.leave.bias.zero_()
        return {"edges": edges, "sparse": np.array([int(planted.is_sparse)])}

    def edges(self, bins: int) -> np.ndarray:
        """Compute the edges of bins of equal probability; Shape (bins + 1), from 0 to 1."""
        brightness = NormalDist(self.mean, self.deviation)
        inner = [brightness.inv_cdf(number / bins) for number in range(1, bins)]
        edges = np.array([0.0, *inner, 1.0])
        if (np.diff(edges) <= 0).any():
            raise IncompatibleError(
                f"edges of {bins} bins with mean={self.mean} and deviation={self.deviation} are "
                "not between 0 and 1; choose fewer bins, or the statistics of images"
            )
        return edges


def expected_alone(bins: int, samples: int) -> float:
    """Compute the expected share of samples that are alone in their bin, of equal probability.

    Each of the other samples misses the bin with probability 1 - 1 / bins (Fowl et al. 2022).
    """
    return float((1 - 1 / bins) ** (samples - 1))


def planted_layer(network: torch.nn.Module) -> str:
    """Return the name of the planted layer.

    Raises:
        IncompatibleError: the network has none.
    """
    from gleak.models.layers import PlantedDense

    for name, layer in network.named_modules():
        if isinstance(layer, PlantedDense):
            return name
    raise IncompatibleError("it has no planted layer; use model planted, in front of any other")
