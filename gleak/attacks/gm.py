"""Gradient matching as the cocktail party attack is compared with it."""

from __future__ import annotations

from typing import Annotated, ClassVar

from typing_extensions import override

from gleak.attacks.matching import MatchingAttack
from gleak.core.registry import nested, register
from gleak.core.spec import parameter
from gleak.matching.distances.cosine import Cosine
from gleak.matching.optimizers.first_order import Adam
from gleak.matching.parts import LabelRule, Parts
from gleak.matching.starts.base import StartSpec
from gleak.matching.starts.random_values import Normal


@register("gm")
class GM(MatchingAttack):
    """Adam on the cosine distance with total variation, the labels optimised too.

    CPA names InvertGrad with the best total variation found. Its reference takes the gradient and
    not its sign, and lets the rate fall along a cosine. It cuts the images to [0, 1] at the end
    alone (box=false); to keep them there at every step, as InvertGrad does, is worth 3 to 4 dB on
    training images of CIFAR-10 (batches of 8, an untrained ``vgg_small``, 300 iterations), and a
    baseline should not be weaker than it need be.
    """

    source = "Geiping et al. 2020, as the baseline of CPA section V-A"

    tuned: ClassVar[frozenset[str]] = frozenset({"tv"})

    iterations: int = parameter(25000, "budget of one victim", source="CPA section V-A", ge=1)
    lr: float = parameter(0.1, "learning rate at the start", source="CPA reference", gt=0)
    tv: float = parameter(
        1e-3, "weight of the total variation (images)", source="CPA reference", ge=0
    )
    start: Annotated[StartSpec, nested("start")] = parameter(
        Normal(), "first dummy input", source="InvertGrad"
    )
    labels: LabelRule = parameter("joint", "how labels are found", source="CPA reference")
    box: bool = parameter(True, "keep every value in [0, 1] at each step", source="InvertGrad")

    @override
    def parts(self) -> Parts:
        return Parts(
            start=self.start,
            labels=self.labels,
            distance=Cosine(),
            optimizer=Adam(lr=self.lr, schedule="cosine"),
            total_variation=self.tv,
            box=self.box,
            **self.common(),
        )
