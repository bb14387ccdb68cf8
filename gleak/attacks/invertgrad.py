"""Inverting gradients."""

from __future__ import annotations

from typing import Annotated

from gleak.attacks.matching import MatchingAttack
from gleak.matching.distances.cosine import Cosine
from gleak.matching.optimizers.adam import Adam
from gleak.matching.parts import LabelRule, Parts
from gleak.matching.starts.base import StartSpec
from gleak.matching.starts.normal import Normal
from gleak.registry import nested, register
from gleak.spec import knob


@register("invertgrad")
class InvertGrad(MatchingAttack):
    """Signed Adam on the cosine distance with total variation, inside the box of valid images."""

    source = "Geiping et al. 2020; [10] in CPL"

    iterations: int = knob(4800, "budget of one victim", source="InvertGrad reference", ge=1)
    lr: float = knob(
        0.1, "learning rate; a tenth after 3/8, 5/8 and 7/8", source="InvertGrad", gt=0
    )
    tv: float = knob(
        0.1, "weight of the total variation (images)", source="InvertGrad, small networks", ge=0
    )
    start: Annotated[StartSpec, nested("start")] = knob(
        Normal(), "first dummy input", source="InvertGrad"
    )
    labels: LabelRule = knob("argmin", "how labels are found", source="as iDLG, for batches too")
    threshold: float | None = knob(
        None, "cosine distance that ends the search early", source="ours, to count iterations", gt=0
    )

    def parts(self) -> Parts:
        """See `MatchingAttack.parts`."""
        return Parts(
            start=self.start,
            labels=self.labels,
            distance=Cosine(),
            optimizer=Adam(lr=self.lr, signed=True, schedule="steps"),
            threshold=self.threshold,
            total_variation=self.tv,
            box=True,
            **self.common(),
        )
