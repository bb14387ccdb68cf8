"""Inverting gradients, and the variant that serves as baseline of the cocktail party attack."""

from __future__ import annotations

from typing import ClassVar

from gleak.attacks.matching.distances import Cosine
from gleak.attacks.matching.optimizers import Adam
from gleak.attacks.matching.parts import LabelRule, Parts
from gleak.attacks.matching.priors import TotalVariation
from gleak.attacks.matching.starts import Normal
from gleak.attacks.matching_attack import MatchingAttack, SignedAdamAttack, Start
from gleak.core.registry import register
from gleak.core.spec import parameter


@register("invertgrad")
class InvertGrad(SignedAdamAttack):
    """Signed Adam on the cosine distance with total variation, inside the box of valid images."""

    source = "Geiping et al. 2020; [10] in CPL"
    budget_fields: ClassVar[frozenset[str]] = frozenset({"iterations", "threshold"})

    labels: LabelRule = parameter(
        "auto", "label inference rule", source="ours; for one sample as iDLG and CPL"
    )
    threshold: float | None = parameter(
        None, "cosine distance that ends the search early", source="ours, to count iterations", gt=0
    )

    def parts(self) -> Parts:
        return Parts(labels=self.labels, threshold=self.threshold, **self.common())


@register("gm")
class GM(MatchingAttack):
    """Adam on the cosine distance with total variation and jointly optimised labels.

    CPA describes this baseline as InvertGrad with the best total variation found. Its reference
    code uses the gradient instead of its sign, a cosine learning rate schedule, and clips the
    images to [0, 1] only at the end (box=false). Clipping at every step, as InvertGrad does, gains
    3 to 4 dB on training images of CIFAR-10 (batches of 8, an untrained ``vgg_small``, 300
    iterations); it is the default here so that the baseline is not weaker than necessary.
    """

    source = "Geiping et al. 2020, as the baseline of CPA section V-A"
    superseded: ClassVar[str] = "invertgrad finds more by the same kind of search"

    tuned: ClassVar[frozenset[str]] = frozenset({"tv"})

    iterations: int = parameter(25000, "budget of one victim", source="CPA section V-A", ge=1)
    lr: float = parameter(0.1, "learning rate at the start", source="CPA reference", gt=0)
    tv: float = parameter(
        1e-3, "weight of the total variation (images)", source="CPA reference", ge=0
    )
    start: Start = parameter(Normal(), "first dummy input", source="InvertGrad")
    labels: LabelRule = parameter("joint", "label inference rule", source="CPA reference")
    box: bool = parameter(True, "clip values to [0, 1] at each step", source="InvertGrad")

    def parts(self) -> Parts:
        return Parts(
            start=self.start,
            labels=self.labels,
            distance=Cosine(),
            optimizer=Adam(lr=self.lr, schedule="cosine"),
            priors=(TotalVariation(self.tv),),
            box=self.box,
            **self.common(),
        )
