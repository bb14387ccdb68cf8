"""Architectures with a dense layer that a server has put in front of them."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import OrderedDict
from typing import Annotated, ClassVar, Literal

from gleak.core.lazy import torch
from gleak.core.registry import nested, register
from gleak.core.spec import parameter
from gleak.data.base import Modality
from gleak.models.base import FirstLayer, ModelSpec
from gleak.models.lenet import LeNet


class PlantedSpec(ModelSpec):
    """Base class of architectures with a planted layer in front of another architecture."""

    hidden_dense: ClassVar[bool | None] = True

    model: Annotated[ModelSpec, nested("model")] = parameter(
        LeNet(), "architecture behind the planted layer"
    )
    bins: int = parameter(
        256, "rows of the planted layer", source="ours; Fowl et al. vary them", ge=2
    )
    activation: Literal["relu", "hardtanh"] = parameter(
        "relu", "of the planted layer; hardtanh: sparse bins", source="Fowl et al. 2022"
    )

    @property
    def user_defined(self) -> bool:
        """True if nothing is known of the architecture behind the layer."""
        return self.model.user_defined

    @property
    def has_batch_norm(self) -> bool:
        return self.model.has_batch_norm

    @property
    def smallest_side(self) -> int:
        return self.model.smallest_side

    @abstractmethod
    def planted(self, shape: tuple[int, ...]) -> torch.nn.Module:
        """Build the planted layer for samples of a shape."""

    def build(self, shape: tuple[int, ...], classes: int) -> torch.nn.Module:
        planted = self.planted(shape)
        behind = self.model.build(shape, classes)
        return torch.nn.Sequential(OrderedDict(planted=planted, model=behind))

    def first_dense_neurons(self, classes: int | None) -> int | None:
        return self.bins

    def check(self, modality: Modality, shape: tuple[int, ...]) -> None:
        """Raise `IncompatibleError` if the architecture behind cannot take the samples."""
        super().check(modality, shape)
        self.model.check(modality, shape)


@register("planted")
class Planted(PlantedSpec):
    """Any architecture behind a dense layer that takes the samples and adds to them.

    A sample x becomes x + V s(W x + b) + c before it enters the other network, with as many rows of
    W as there are bins: a place where a malicious server reads samples off gradients
    (`gleak.crafting.imprint`). The sum keeps the other network useful. Untrained, the layers are
    initialised like any others, so that an honest server with this architecture can be compared.

    Of the activations s, ``relu`` makes cumulative bins, and ``hardtanh``, cut to
    [0, `gleak.models.layers.CEILING`], sparse ones: only samples in a bin have a gradient there.
    """

    source = "Fowl et al. 2022 (Robbing the Fed); the sum is ours"
    first_layer: ClassVar[FirstLayer] = "dense"

    def planted(self, shape: tuple[int, ...]) -> torch.nn.Module:
        from gleak.models.layers import PlantedDense

        return PlantedDense(math.prod(shape), self.bins, self.activation)

    def multiply_adds(self, shape: tuple[int, ...], classes: int) -> int:
        planted = 2 * self.bins * math.prod(shape)
        return planted + self.model.multiply_adds(shape, classes)

    def parameters(self, shape: tuple[int, ...], classes: int) -> int:
        values = math.prod(shape)
        planted = 2 * self.bins * values + self.bins + values
        return planted + self.model.parameters(shape, classes)
