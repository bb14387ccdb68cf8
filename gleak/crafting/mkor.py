"""MKOR's parameters: dense layers that keep classes apart, convolutions that copy the image."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

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

PARALLEL_PATHS = 4
CUTTING = ("relu", "leaky_relu")


@register("mkor")
class MKOR(CraftingSpec):
    """Maximum knowledge orthogonality reconstruction: the server's part (MKOR section 3).

    Each class has neurons of its own in every dense layer, so that with the loss ``nll_raw`` the
    gradient of the first dense layer holds each class's features apart (Eq. 9). Convolutions of
    one-hot kernels let features be windows of the image (see `gleak.crafting.mkor_views`).

    ``hiding=naive`` is Figures 1 and 2: all other weights are zero. ``inconspicuous`` is Eq. 10 to
    13 and 20: neurons come in pairs of which one is alpha < 0 times the other, channels and neurons
    are shuffled, weights between those that carry something are noise, all others stay. As printed
    that does not suffice, and two things are ours. Eq. 12 leaves the weights into a class's neuron
    from neurons that serve no class, which switch it off for about half of the images: we choose
    neurons that are on for made-up images, and give a path its row's largest weight. Eq. 20 leaves
    the weights from channels that carry nothing, which blur the image unless ``beta`` is 4 or more
    and activations explode: with ``quiet`` they lose that share of the directions that kernels can
    see, those in which the activations of made-up images are widest, 1,000 at most.

    ``sink`` is our remedy for cross-entropy, where on one sample of each class the softmax all but
    cancels the signal: the bias of one class's logit is raised, which shows the attacker the sum
    over the batch, and it subtracts what the softmax added (see the attack `mkor`). That class
    itself cannot be read.

    Dropout in the network is met by parallel paths, batch normalisation by weights and biases that
    undo it; activations need only rise.
    """

    source = "Wang, Velipasalar and Gursoy 2023 (MKOR), section 3"

    hiding: Literal["inconspicuous", "naive"] = parameter(
        "inconspicuous", "naive: zeros beside the paths", source="MKOR sections 3.2.3 and 3.4.3"
    )
    directions: int | None = parameter(
        None,
        "convolutions that divide channels by four directions, the last that shrink; none: all",
        source="MKOR section 3.4.2: 3 in VGG-16",
        ge=0,
    )
    alpha: float = parameter(-1.0, "factor within pairs of rows", source="MKOR Eq. 10", lt=0)
    beta: float = parameter(1.0, "weight of a one-hot kernel", source="MKOR Eq. 20", gt=0)
    noise: float = parameter(
        1e-4, "deviation of the noise, in that of the layer's weights", source="MKOR Eq. 12", ge=0
    )
    cover: float = parameter(
        0.0,
        "deviation of noise on every weight in the end, in that of the layer's weights",
        source="MKOR sections 3.2.3 and 3.4.3",
        ge=0,
    )
    quiet: float = parameter(
        0.5,
        "share of their directions that other channels' weights lose",
        source="ours",
        ge=0,
        le=1,
    )
    paths: int | None = parameter(
        None, "paths to each class; none: 4 where neurons are dropped, else 1", source="ours", ge=1
    )
    sink: float = parameter(
        0.0, "added to the bias of one class", unit="logit", source="ours", ge=0
    )

    def check(self, dataset: DatasetSpec, model: ModelSpec) -> None:
        """Refuse tables, and networks between whose dense layers no paths can be laid.

        Raises:
            IncompatibleError: see `CraftingSpec.check`.
        """
        if dataset.modality != "image":
            raise IncompatibleError(f"crafting {self} copies images, not {dataset.modality} data")
        if model.first_layer == "dense":
            raise IncompatibleError(
                f"crafting {self} copies images through convolutions, and model {model} begins "
                "with a dense layer, whose gradient shows them as it is: use attack cpa or aono"
            )
        if model.hidden_dense is False:
            raise IncompatibleError(
                f"crafting {self} needs two dense layers or more, and model {model} has one; "
                "use lenet5, vgg_small or vgg16"
            )
        if getattr(model, "precode", 0):
            raise IncompatibleError(
                f"crafting {self} lays no path through the variational block of model {model}; "
                "use precode=0"
            )
        self._check_neurons(dataset, model)

    def _check_neurons(self, dataset: DatasetSpec, model: ModelSpec) -> None:
        """Refuse dense layers with too few neurons, where their widths are known.

        Raises:
            IncompatibleError: names the width and what is needed.
        """
        widths, classes = getattr(model, "hidden_layers", []), dataset.classes or 0
        paths = classes * self.paths_beside(getattr(model, "dropout", 0.0))
        cut = self.hiding != "naive" and getattr(model, "activation", "") in CUTTING
        for number, width in enumerate(widths):
            needed = paths * (2 if cut and number == 0 else 1)
            if width < needed:
                raise IncompatibleError(
                    f"crafting {self}: {classes} classes need {needed} neurons in dense layer "
                    f"{number + 1}, and model {model} has {width}"
                )

    @override
    def check_network(self, network: nn.Module, shape: tuple[int, ...], classes: int) -> None:
        """A chain of layers that paths can be laid through."""
        from gleak.crafting.mkor_network import plan_network

        plan_network(network, shape, self)

    def paths_beside(self, dropout: float) -> int:
        """Paths to each class, if so large a share of the neurons is dropped."""
        return self.paths or (PARALLEL_PATHS if dropout else 1)

    def craft(self, model: Model, seed: int) -> Crafted:
        """See `CraftingSpec.craft`.

        Returns:
            The parameters, whose test accuracy is left out, and the secret: ``rows`` and ``pairs``
            of `gleak.crafting.mkor_classes.ClassPaths`, ``gains`` of
            `gleak.crafting.mkor_classes.path_gains`; ``kept``, Shape (1), the chance that a path is
            not dropped; ``chances``, Shape (classes), the softmax on made-up images; what
            `gleak.crafting.mkor_views.view_arrays` and `gleak.crafting.mkor_greys.responses` say.
        """
        from gleak.crafting.mkor_network import craft_network
        from gleak.models.broadcast import load_network, with_state

        network = load_network(model, f"crafting {self}")
        try:
            secret = craft_network(network, tuple(map(int, model.input_shape)), self, seed)
        except IncompatibleError as error:
            raise IncompatibleError(
                f"crafting {self} does not fit model {model.model}: {error}"
            ) from None
        return Crafted(replace(with_state(model, network), test_accuracy=np.empty(0)), secret)
