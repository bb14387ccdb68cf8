"""Networks that end in dense layers, before the last of which PRECODE's block can stand."""

from __future__ import annotations

from abc import abstractmethod

from typing_extensions import override

from gleak.core.spec import parameter
from gleak.models.base import ModelSpec


class PrecodeNetwork(ModelSpec):
    """Base of the networks that can be extended by PRECODE (Scheliga et al. 2022; ROG section 5.1).

    With precode=k an encoder before the last dense layer makes means and deviations of k values
    from the features that layer takes, a client samples the values from those Gaussians, and a
    decoder makes features from them again. Both are dense layers without an activation. To each
    sample's loss is added beta times their divergence from N(0, I), whoever computes it (see
    `gleak.models.penalties`). Attackers do not know what a client has sampled; they match with the
    mean in its place, as a network in evaluation mode does.
    """

    precode: int = parameter(
        0,
        "values k sampled before the last dense layer; 0: no variational block",
        source="Scheliga et al. 2022: 256",
        ge=0,
    )
    beta: float = parameter(
        1e-3,
        "weight of the sampled values' divergence from N(0, I) in the loss, with precode",
        unit="1/nat",
        source="Scheliga et al. 2022",
        ge=0,
    )

    @abstractmethod
    def dense_layers(self, shape: tuple[int, ...], classes: int) -> list[tuple[int, int]]:
        """Inputs and outputs of each dense layer, those of the variational block left out."""

    @property
    @override
    def hidden_dense(self) -> bool | None:
        """The block's layers count."""
        return self.precode > 0

    @override
    def first_dense_neurons(self, classes: int | None) -> int | None:
        """With a block it is the encoder."""
        return 2 * self.precode or classes

    def dense_multiply_adds(self, shape: tuple[int, ...], classes: int) -> int:
        """Of all dense layers, those of the block among them."""
        return sum(inputs * outputs for inputs, outputs in self._all_dense(shape, classes))

    def dense_parameters(self, shape: tuple[int, ...], classes: int) -> int:
        """Likewise."""
        return sum((inputs + 1) * outputs for inputs, outputs in self._all_dense(shape, classes))

    def _all_dense(self, shape: tuple[int, ...], classes: int) -> list[tuple[int, int]]:
        layers = self.dense_layers(shape, classes)
        features, _ = layers[-1]
        block = [(features, 2 * self.precode), (self.precode, features)] if self.precode else []
        return [*layers, *block]
