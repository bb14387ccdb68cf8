"""Deep leakage from gradients."""

from __future__ import annotations

from typing import Annotated

from typing_extensions import override

from gleak.attacks.matching import QuasiNewtonAttack
from gleak.core.registry import nested, register
from gleak.core.spec import parameter
from gleak.matching.distances.euclidean import L2
from gleak.matching.optimizers.quasi_newton import LBFGS
from gleak.matching.parts import Parts
from gleak.matching.starts.base import StartSpec
from gleak.matching.starts.random_values import Normal


@register("dlg")
class DLG(QuasiNewtonAttack):
    """Samples and soft labels optimised together from normal values.

    The label reported is the optimised one; the public code reports that of the random start.
    """

    source = "Zhu et al. 2019; [45] in CPL"

    start: Annotated[StartSpec, nested("start")] = parameter(
        Normal(), "first dummy input", source="DLG"
    )

    @override
    def parts(self) -> Parts:
        return Parts(
            start=self.start, labels="joint", distance=L2(), optimizer=LBFGS(), **self.common()
        )
