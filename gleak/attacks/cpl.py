"""The client privacy leakage attack."""

from __future__ import annotations

from typing import Annotated

from typing_extensions import override

from gleak.attacks.matching import QuasiNewtonAttack
from gleak.core.registry import nested, register
from gleak.core.spec import parameter
from gleak.matching.distances.base import DistanceSpec
from gleak.matching.distances.euclidean import L2
from gleak.matching.optimizers.base import OptimizerSpec
from gleak.matching.optimizers.quasi_newton import LBFGS
from gleak.matching.parts import LabelRule, Parts
from gleak.matching.starts.base import StartSpec
from gleak.matching.starts.random_values import Patterned


@register("cpl")
class CPL(QuasiNewtonAttack):
    """L-BFGS from a patterned start, the label read off the classifier's gradient."""

    source = "CPL Algorithm 1 and section 4.1"

    start: Annotated[StartSpec, nested("start")] = parameter(
        Patterned(), "first dummy input", source="CPL section 4.1"
    )
    labels: LabelRule = parameter(
        "argmin", "how labels are found", source="CPL Algorithm 1, line 9"
    )
    distance: Annotated[DistanceSpec, nested("distance")] = parameter(
        L2(), "between gradients", source="CPL Algorithm 1, line 12"
    )
    optimizer: Annotated[OptimizerSpec, nested("optimizer")] = parameter(
        LBFGS(), "how the dummy moves", source="CPL section 3.1"
    )
    alpha: float = parameter(
        0.0,
        "weight of the label term; the paper names no value",
        source="CPL Algorithm 1, line 12",
        ge=0,
    )

    @override
    def parts(self) -> Parts:
        return Parts(
            start=self.start,
            labels=self.labels,
            distance=self.distance,
            optimizer=self.optimizer,
            label_term=self.alpha,
            **self.common(),
        )
