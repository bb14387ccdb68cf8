"""Class fishing's parameters: a last layer to which all classes but one are the same."""

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
    """A server that fishes for the samples of one class, whatever the size of the batch.

    Of the last layer it keeps the target's row w and bias; the other rows are zero and the other
    biases large. So a sample's gradient at the features is (p - [label = target]) w, where p, the
    target's softmax, is next to nothing: every earlier layer's gradient is that of the target's
    samples alone, times their share of the batch. With the loss ``nll_raw`` p is exactly zero, and
    so it is in float32 from a ``bias`` of 50 on for logits of up to 13 (``lenet``, ``mlp`` and
    ``vgg_small``, before and after training on digits). At 10 the others add 1e-4 of the norm.

    A server does not know which classes a client holds, and all clients are sent the same
    parameters: a client without the target shows nothing.
    """

    source = "Wen et al. 2022, class fishing; CF in MKOR section 4"

    target: int = parameter(0, "class that is fished for", source="reference", ge=0)
    bias: float = parameter(
        100.0, "bias of the other classes", unit="logit", source="ours; reference: 1000", ge=0
    )

    def check(self, dataset: DatasetSpec, model: ModelSpec) -> None:
        """Refuse a target that is no class of the dataset, as far as these are known.

        Raises:
            IncompatibleError: see `CraftingSpec.check`.
        """
        if dataset.classes is not None:
            self._check_target(dataset.classes, f"dataset {dataset}")

    @override
    def check_network(self, network: nn.Module, shape: tuple[int, ...], classes: int) -> None:
        """A dense layer of logits, with the target."""
        self._check_target(classes, "the dataset")
        from gleak.models.layer_search import find_classifier

        find_classifier(network, shape, classes).dense_parameters()

    def craft(self, model: Model, seed: int) -> Crafted:
        """See `CraftingSpec.craft`.

        Returns:
            The secret: ``target``, Shape (1).
        """
        self._check_target(model.classes, f"model {model.model}")
        names = self._names(model)
        parameters = dict(model.parameters)
        for name, elsewhere in zip(names, (0.0, self.bias), strict=True):
            crafted = np.full_like(parameters[name], elsewhere)
            crafted[self.target] = parameters[name][self.target]
            parameters[name] = crafted
        return Crafted(replace(model, parameters=parameters), {"target": np.array([self.target])})

    def _names(self, model: Model) -> tuple[str, str]:
        """Of the last layer's weight and bias."""
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

    def _check_target(self, classes: int, holder: str) -> None:
        if self.target >= classes:
            raise IncompatibleError(
                f"crafting {self}: target={self.target} is no class of {holder}, which has "
                f"{classes}; choose 0 to {classes - 1}"
            )
