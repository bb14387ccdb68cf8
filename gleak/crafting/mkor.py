"""MKOR: dense layers that separate classes, and convolutions that copy the image."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from typing_extensions import override

from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.crafting.base import CraftingSpec

if TYPE_CHECKING:
    import numpy as np

    from gleak.data.base import DatasetSpec
    from gleak.models.base import ModelSpec

PARALLEL_PATHS = 4
CUTTING = ("relu", "leaky_relu")


@register("mkor")
class MKOR(CraftingSpec):
    """Maximum knowledge orthogonality reconstruction: the server's part (MKOR section 3).

    Each class has separate neurons in every dense layer, so that with the loss ``nll_raw`` the
    gradient of the first dense layer contains the features of each class separately (Eq. 9).
    Convolutions with one-hot kernels make features that are windows of the image (see
    `gleak.crafting.mkor_views`).

    ``hiding=naive`` is Figures 1 and 2: all other weights are zero. ``inconspicuous`` is Eq. 10 to
    13 and 20: neurons form pairs in which one is alpha < 0 times the other, channels and neurons
    are shuffled, weights between those that carry a signal are noise, all others are unchanged. As
    printed this does not suffice, and two things are ours. Eq. 12 keeps the weights into a class's
    neuron from neurons of no class, which deactivate it for about half of the images: we choose
    neurons that are active for synthetic images, and give a path its row's largest weight. Eq. 20
    keeps the weights from channels without a signal, which blur the image unless ``beta`` is 4 or
    more and activations explode: with ``quiet`` that share of their directions is removed, namely
    those along which the activations of synthetic images are largest, 1,000 at most.

    ``sink`` is our remedy for cross-entropy, for which the softmax almost cancels the signal of a
    batch with one sample of each class: the bias of one class's logit is raised, which reveals the
    sum over the batch to the attacker, who then subtracts the contribution of the softmax (see the
    attack `mkor`). That class itself cannot be recovered.

    Dropout is handled by parallel paths, batch normalisation by weights and biases that invert it;
    activations only have to be increasing.
    """

    source = "Wang, Velipasalar and Gursoy 2023 (MKOR), section 3"

    hiding: Literal["inconspicuous", "naive"] = parameter(
        "inconspicuous", "naive: all other weights are zero", source="MKOR sections 3.2.3 and 3.4.3"
    )
    directions: int | None = parameter(
        None,
        "downsampling convolutions, from the last, that shift in four directions; none: all",
        source="MKOR section 3.4.2: 3 in VGG-16",
        ge=0,
    )
    alpha: float = parameter(-1.0, "factor within pairs of rows", source="MKOR Eq. 10", lt=0)
    beta: float = parameter(1.0, "weight of a one-hot kernel", source="MKOR Eq. 20", gt=0)
    noise: float = parameter(
        1e-4, "deviation of the noise, relative to the layer's weights", source="MKOR Eq. 12", ge=0
    )
    cover: float = parameter(
        0.0,
        "deviation of noise added to every weight at the end, relative to the layer's weights",
        source="MKOR sections 3.2.3 and 3.4.3",
        ge=0,
    )
    quiet: float = parameter(
        0.5,
        "share of directions removed from the weights of other channels",
        source="ours",
        ge=0,
        le=1,
    )
    paths: int | None = parameter(
        None, "paths to each class; none: 4 with dropout, else 1", source="ours", ge=1
    )
    sink: float = parameter(
        0.0, "added to the bias of one class", unit="logit", source="ours", ge=0
    )

    @override
    def check(self, dataset: DatasetSpec, model: ModelSpec) -> None:
        if dataset.modality != "image":
            raise IncompatibleError(f"crafting {self} copies images, not {dataset.modality} data")
        if model.first_layer == "dense":
            raise IncompatibleError(
                f"crafting {self} copies images through convolutions, but model {model} begins "
                "with a dense layer, whose gradient reveals them anyway; use attack cpa or aono"
            )
        if model.hidden_dense is False:
            raise IncompatibleError(
                f"crafting {self} needs two dense layers or more, but model {model} has one; "
                "use lenet5, vgg_small or vgg16"
            )
        if not model.has_dense_bias:
            raise IncompatibleError(
                f"crafting {self} changes the biases of dense layers, and those of model {model} "
                "have none; use lenet5, vgg_small or vgg16"
            )
        if getattr(model, "precode", 0):
            raise IncompatibleError(
                f"crafting {self} does not support the variational block of model {model}; "
                "use precode=0"
            )
        self._check_neurons(dataset, model)

    def _check_neurons(self, dataset: DatasetSpec, model: ModelSpec) -> None:
        """Raise `IncompatibleError` if a dense layer of known width has too few neurons."""
        widths, classes = getattr(model, "hidden_layers", []), dataset.classes or 0
        paths = classes * self.paths_per_class(getattr(model, "dropout", 0.0))
        cut = self.hiding != "naive" and getattr(model, "activation", "") in CUTTING
        for number, width in enumerate(widths):
            needed = paths * (2 if cut and number == 0 else 1)
            if width < needed:
                raise IncompatibleError(
                    f"crafting {self}: {classes} classes need {needed} neurons in dense layer "
                    f"{number + 1}, but model {model} has {width}"
                )

    @override
    def check_network(self, network: torch.nn.Module, shape: tuple[int, ...], classes: int) -> None:
        """Check that the network is a supported sequence of layers."""
        from gleak.crafting.mkor_network import plan_network

        plan_network(network, shape, self)

    def paths_per_class(self, dropout: float) -> int:
        """Return the number of paths to each class, given the dropout probability."""
        return self.paths or (PARALLEL_PATHS if dropout else 1)

    @override
    def craft_network(
        self, network: torch.nn.Module, shape: tuple[int, ...], classes: int, seed: int
    ) -> dict[str, np.ndarray]:
        """Craft convolutions and dense layers.

        Returns:
            The secret consists of ``rows`` and ``pairs`` (see
            `gleak.crafting.mkor_layers.ClassPaths`), ``gains`` (see
            `gleak.crafting.mkor_layers.path_gains`), ``kept``, Shape (1), the probability that a
            path is not dropped, ``chances``, Shape (classes), the mean softmax on synthetic images,
            and the arrays of `gleak.crafting.mkor_views.view_arrays` and
            `gleak.crafting.mkor_network.grey_responses`.
        """
        from gleak.crafting.mkor_network import craft_network

        return craft_network(network, shape, self, seed)
