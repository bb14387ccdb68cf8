"""Approximate gradient inversion: layer weights and the one-batch approximation."""

from __future__ import annotations

from typing import Annotated, ClassVar

from typing_extensions import override

from gleak.attacks.matching import MatchingAttack
from gleak.core.registry import nested, register
from gleak.core.spec import parameter
from gleak.matching.distances.cosine import Cosine
from gleak.matching.layer_weights import LayerFunction, LayerWeights
from gleak.matching.optimizers.first_order import Adam
from gleak.matching.parts import LabelRule, Parts
from gleak.matching.starts.base import StartSpec
from gleak.matching.starts.random_values import Normal


@register("agic")
class AGIC(MatchingAttack):
    """Adam on the layer-weighted cosine distance with total variation (Eq. 2, 6 to 8).

    An update of several local steps is taken for one step over all of its samples (Eq. 4), so the
    cost does not depend on their number, and labels can be read off it. How much later layers
    count is chosen by the state of the network: 50 if it is untrained, 2 if it is trained.
    """

    source = "Xu et al. 2022"
    tuned: ClassVar[frozenset[str]] = frozenset({"tv"})

    iterations: int = parameter(10000, "budget of one victim", source="AGIC section V-A", ge=1)
    lr: float = parameter(0.1, "learning rate at the start", source="AGIC section V-A", gt=0)
    tv: float = parameter(
        1e-4, "weight of the total variation (images)", source="AGIC, untrained ResNet20-4", ge=0
    )
    start: Annotated[StartSpec, nested("start")] = parameter(
        Normal(), "first dummy input", source="InvertGrad"
    )
    labels: LabelRule = parameter("rows", "how labels are found", source="AGIC section V-A")
    signed: bool = parameter(
        True, "use the sign of the gradient", source="InvertGrad; AGIC does not say"
    )
    beta: float = parameter(
        50.0,
        "weight of the last convolution, the first being 1; 1: all alike",
        source="AGIC, untrained networks; 2 for trained ones",
        gt=0,
    )
    weights: LayerFunction = parameter(
        "linear", "how weights go from the first convolution to the last", source="AGIC Table I"
    )
    relu_modifier: bool = parameter(
        True, "layers with zeros in their gradients count more", source="AGIC Eq. 8"
    )

    @override
    def parts(self) -> Parts:
        return Parts(
            start=self.start,
            labels=self.labels,
            distance=Cosine(),
            layers=LayerWeights(
                beta=self.beta, function=self.weights, relu_modifier=self.relu_modifier
            ),
            optimizer=Adam(lr=self.lr, signed=self.signed, schedule="steps"),
            total_variation=self.tv,
            box=True,
            **self.common(),
        )
