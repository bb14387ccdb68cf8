"""Inversion of the gradients of networks with batch normalisation (GradInversion)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from typing_extensions import override

from gleak.attacks.matching_attack import SignedAdamAttack
from gleak.core.errors import IncompatibleError
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.matching.parts import LabelRule, Parts

if TYPE_CHECKING:
    from torch import nn

    from gleak.clients.base import ClientSpec
    from gleak.data.base import DatasetSpec
    from gleak.models.base import ModelSpec


@register("gradinversion")
class GradInversion(SignedAdamAttack):
    """Signed Adam on the cosine distance with a prior by the network's running statistics.

    The network that the server broadcasts keeps means and variances of the data it was trained on,
    layer by layer. The prior asks for images with such statistics, which an untrained network does
    not have. GradInversion matches gradients by their squared distance, and averages the images of
    several starts; here one start is searched as by InvertGrad.
    """

    source = "Yin et al. 2021 (GradInversion), section 3"
    modalities: ClassVar[frozenset[str]] = frozenset({"image"})
    tuned: ClassVar[frozenset[str]] = frozenset({"tv", "batch_norm"})

    tv: float = parameter(0.01, "weight of the total variation", source="ours", ge=0)
    batch_norm: float = parameter(
        0.03,
        "weight of the prior by running statistics",
        source="ours; of 0.001 to 0.1 best on training images of CIFAR-10",
        gt=0,
    )
    labels: LabelRule = parameter("auto", "label inference rule", source="ours")

    @override
    def check(self, dataset: DatasetSpec, model: ModelSpec, client: ClientSpec) -> None:
        super().check(dataset, model, client)
        if not model.has_batch_norm:
            raise IncompatibleError(
                f"attack {self} needs the running statistics of batch normalisation, which model "
                f"{model} has not; use norm=batch where the model has it, or invertgrad"
            )

    @override
    def check_network(
        self, network: nn.Module, shape: tuple[int, ...], classes: int, client: ClientSpec
    ) -> None:
        """Check that a layer keeps running statistics, and that gradients can be matched."""
        from gleak.matching.batch_norm_prior import BatchNormPrior

        super().check_network(network, shape, classes, client)
        BatchNormPrior.of(network)

    @override
    def parts(self) -> Parts:
        return Parts(labels=self.labels, batch_norm=self.batch_norm, **self.common())
