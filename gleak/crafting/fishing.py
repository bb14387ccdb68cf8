"""Class fishing: a last layer that does not distinguish the classes except one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import override

from gleak.core.errors import IncompatibleError
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.crafting.base import Crafted, CraftingSpec

if TYPE_CHECKING:
    from torch import nn

    from gleak.artifacts.model import Model
    from gleak.data.base import DatasetSpec
    from gleak.models.base import ModelSpec


@register("fishing")
class Fishing(CraftingSpec):
    """Server that singles out the samples of one class, for any batch size.

    In the last layer it keeps the target's row w and bias; the other rows are set to zero and the
    other biases to a large value. A sample's gradient at the features is then (p - [label =
    target]) w, where p, the target's softmax, is almost zero: the gradient of every earlier layer
    is that of the target's samples alone, times their share of the batch. With the loss ``nll_raw``
    p is exactly zero, and also in float32 for a ``bias`` of at least 50 and logits of up to 13
    (``lenet``, ``mlp`` and ``vgg_small``, before and after training on digits). At 10 the other
    samples contribute 1e-4 of the norm.

    A server does not know the classes of a client and sends all clients the same parameters; the
    update of a client without the target reveals nothing.
    """

    source = "Wen et al. 2022, class fishing; CF in MKOR section 4"

    target: int = parameter(0, "class to single out", source="reference", ge=0)
    bias: float = parameter(
        100.0, "bias of the other classes", unit="logit", source="ours; reference: 1000", ge=0
    )

    @override
    def check(self, dataset: DatasetSpec, model: ModelSpec) -> None:
        if dataset.classes is not None:
            self._check_target(dataset.classes, f"dataset {dataset}")

    @override
    def check_network(self, network: nn.Module, shape: tuple[int, ...], classes: int) -> None:
        """Check that the last layer is dense and that the target is a class."""
        self._check_target(classes, "the dataset")
        from gleak.models.layer_search import find_classifier

        find_classifier(network, shape, classes).dense_parameters()

    @override
    def craft(self, model: Model, seed: int) -> Crafted:
        """Return the parameters and the secret: ``target``, Shape (1)."""
        self._check_target(model.classes, f"model {model.model}")
        names = self._last_layer(model)
        parameters = dict(model.parameters)
        for name, other in zip(names, (0.0, self.bias), strict=True):
            crafted = np.full_like(parameters[name], other)
            crafted[self.target] = parameters[name][self.target]
            parameters[name] = crafted
        return Crafted(replace(model, parameters=parameters), {"target": np.array([self.target])})

    def _last_layer(self, model: Model) -> tuple[str, str]:
        """Return the names of the last layer's weight and bias."""
        from gleak.models.broadcast import load_network
        from gleak.models.layer_search import find_classifier

        shape = tuple(map(int, model.input_shape))
        network = load_network(model, str(model.model))
        try:
            return find_classifier(network, shape, model.classes).dense_parameters()
        except IncompatibleError as error:
            raise IncompatibleError(
                f"crafting {self} does not fit model {model.model}: {error}"
            ) from None

    def _check_target(self, classes: int, source: str) -> None:
        if self.target >= classes:
            raise IncompatibleError(
                f"crafting {self}: target={self.target} is no class of {source}, which has "
                f"{classes}; choose 0 to {classes - 1}"
            )
