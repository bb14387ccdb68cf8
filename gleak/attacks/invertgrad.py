"""Inverting gradients."""

from __future__ import annotations

from typing_extensions import override

from gleak.attacks.matching import SignedAdamAttack
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.matching.parts import LabelRule, Parts


@register("invertgrad")
class InvertGrad(SignedAdamAttack):
    """Signed Adam on the cosine distance with total variation, inside the box of valid images."""

    source = "Geiping et al. 2020; [10] in CPL"

    labels: LabelRule = parameter(
        "auto", "how labels are found", source="ours; of one sample as iDLG and CPL"
    )
    threshold: float | None = parameter(
        None, "cosine distance that ends the search early", source="ours, to count iterations", gt=0
    )

    @override
    def parts(self) -> Parts:
        return Parts(labels=self.labels, threshold=self.threshold, **self.common())
