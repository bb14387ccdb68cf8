"""Inverting gradients."""

from __future__ import annotations

from gleak.attacks.matching import SignedAdamAttack
from gleak.matching.parts import LabelRule, Parts
from gleak.registry import register
from gleak.spec import knob


@register("invertgrad")
class InvertGrad(SignedAdamAttack):
    """Signed Adam on the cosine distance with total variation, inside the box of valid images."""

    source = "Geiping et al. 2020; [10] in CPL"

    labels: LabelRule = knob(
        "auto", "how labels are found", source="ours; of one sample as iDLG and CPL"
    )
    threshold: float | None = knob(
        None, "cosine distance that ends the search early", source="ours, to count iterations", gt=0
    )

    def parts(self) -> Parts:
        """See `MatchingAttack.parts`."""
        return Parts(labels=self.labels, threshold=self.threshold, **self.common())
