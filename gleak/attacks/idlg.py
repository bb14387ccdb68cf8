"""Improved deep leakage from gradients."""

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


@register("idlg")
class IDLG(QuasiNewtonAttack):
    """DLG with labels read off the signs of the classifier's gradient.

    The rule is made for one sample; on a batch it takes the N most negative rows, so a label that
    repeats is missed.
    """

    source = "Zhao et al. 2020"

    start: Annotated[StartSpec, nested("start")] = parameter(
        Normal(), "first dummy input", source="iDLG"
    )

    @override
    def parts(self) -> Parts:
        return Parts(
            start=self.start, labels="sign", distance=L2(), optimizer=LBFGS(), **self.common()
        )
