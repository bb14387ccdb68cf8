"""Class fishing: a last layer that does not distinguish the classes except one."""

from __future__ import annotations

import numpy as np

from gleak.core.errors import IncompatibleError, error_context
from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.crafting.base import CraftingSpec
from gleak.data.base import DatasetSpec
from gleak.models.base import ModelSpec
from gleak.models.layer_search import find_classifier


@register("fishing")
class FishingCrafting(CraftingSpec):
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

    def check(self, dataset: DatasetSpec, model: ModelSpec) -> None:
        if dataset.classes is not None:
            with error_context(f"crafting {self}"):
                self._check_target(dataset.classes, f"dataset {dataset}")

    def check_network(self, network: torch.nn.Module, shape: tuple[int, ...], classes: int) -> None:
        """Check that the last layer is dense and that the target is a class."""
        self._check_target(classes, "the dataset")
        find_classifier(network, shape, classes).dense_parameters()

    def craft_network(
        self, network: torch.nn.Module, shape: tuple[int, ...], classes: int, seed: int
    ) -> dict[str, np.ndarray]:
        """Craft the last layer; the secret is ``target``, Shape (1)."""
        self._check_target(classes, "the model")
        names = find_classifier(network, shape, classes).dense_parameters()
        others = torch.arange(classes) != self.target
        with torch.no_grad():
            for name, value in zip(names, (0.0, self.bias), strict=True):
                network.get_parameter(name)[others] = value
        return {"target": np.array([self.target])}

    def _check_target(self, classes: int, source: str) -> None:
        if self.target >= classes:
            raise IncompatibleError(
                f"target={self.target} is no class of {source}, which has {classes}; choose 0 to "
                f"{classes - 1}"
            )
