"""Maximum a posteriori estimates of the samples."""

from __future__ import annotations

from gleak.attacks.matching.codes import Whitened
from gleak.attacks.matching.distances import ProfileLikelihood
from gleak.attacks.matching.line_search import LineSearchLBFGS
from gleak.attacks.matching.parts import LabelRule, Parts
from gleak.attacks.matching.priors import NaturalImages
from gleak.attacks.matching.starts import Grey
from gleak.attacks.matching_attack import MatchingAttack
from gleak.core.registry import register
from gleak.core.spec import parameter


@register("map")
class MAP(MatchingAttack):
    """The samples of greatest posterior probability, by L-BFGS with a line search."""

    source = "ours"

    iterations: int = parameter(400, "gradient evaluations for one victim", source="ours", ge=1)
    labels: LabelRule = parameter("auto", "label inference rule", source="ours")

    def parts(self) -> Parts:
        return Parts(
            start=Grey(noise=0.05),
            labels=self.labels,
            distance=ProfileLikelihood(),
            code=Whitened(),
            optimizer=LineSearchLBFGS(),
            priors=(NaturalImages(1.0),),
            **self.common(),
        )
