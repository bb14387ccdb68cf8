"""Base of the attacks on the samples themselves, where the first layer is dense."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from typing_extensions import override

from gleak.attacks.base import AttackSpec
from gleak.core.errors import IncompatibleError

if TYPE_CHECKING:
    from torch import nn

    from gleak.clients.base import ClientSpec
    from gleak.data.base import DatasetSpec
    from gleak.models.base import ModelSpec

MID_GREY = 0.5
"""In place of a sample that was not found."""


class DenseFirstAttack(AttackSpec):
    """An attack that reads samples off a dense layer which takes them as they are.

    ``instead`` is what an error advises where the network begins with a convolution.
    """

    instead: ClassVar[str] = "use mlp or fc2"

    def check(self, dataset: DatasetSpec, model: ModelSpec, client: ClientSpec) -> None:
        """Refuse models that do not begin with a dense layer, as far as that is known.

        Raises:
            IncompatibleError: see `AttackSpec.check`.
        """
        super().check(dataset, model, client)
        if model.first_layer == "convolution":
            raise IncompatibleError(
                f"attack {self} reads samples off a first layer that is dense, and model {model} "
                f"begins with a convolution; {self.instead}"
            )

    @override
    def check_network(
        self, network: nn.Module, shape: tuple[int, ...], classes: int, client: ClientSpec
    ) -> None:
        """A dense layer of samples, and one of logits."""
        from gleak.attacks.first_layer import dense_layer_of_samples
        from gleak.matching.label_inference import check_rule

        dense_layer_of_samples(network, shape)
        check_rule(network, shape, classes, "argmin")
        super().check_network(network, shape, classes, client)
