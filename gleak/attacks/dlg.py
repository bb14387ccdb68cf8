"""Deep leakage from gradients and the attacks derived from it."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, ClassVar

from gleak.attacks.matching.distances import L2
from gleak.attacks.matching.optimizers import Adam, OptimizerSpec
from gleak.attacks.matching.parts import LabelRule, Parts
from gleak.attacks.matching.quasi_newton import LBFGS
from gleak.attacks.matching.starts import Normal, Patterned
from gleak.attacks.matching_attack import Distance, MatchingAttack, QuasiNewtonAttack, Start
from gleak.core.registry import nested, register
from gleak.core.spec import parameter


@register("dlg")
class DLG(QuasiNewtonAttack):
    """Joint L-BFGS optimisation of samples and soft labels from normally distributed values.

    The reported label is the optimised one; the public code reports the label of the random start.
    """

    source = "Zhu et al. 2019; [45] in CPL"

    start: Start = parameter(Normal(), "first dummy input", source="DLG")

    def parts(self) -> Parts:
        return Parts(
            start=self.start, labels="joint", distance=L2(), optimizer=LBFGS(), **self.common()
        )


@register("dlg_adam")
class DLGAdam(MatchingAttack):
    """Adam on the squared distance; L-BFGS often fails to converge on large networks.

    AGIC grants the labels to all attacks it compares and names no prior. Images are kept in [0, 1].
    InvertGrad's descent, signed and with total variation, finds far more with this distance, too.
    """

    source = "Zhu et al. 2019, as the baseline of AGIC section V-A"
    superseded: ClassVar[str] = "invertgrad finds more by the same kind of search"

    iterations: int = parameter(10000, "budget of one victim", source="AGIC section V-A", ge=1)
    lr: float = parameter(0.1, "learning rate at the start", source="AGIC section V-A", gt=0)
    start: Start = parameter(Normal(), "first dummy input", source="DLG")
    labels: LabelRule = parameter("rows", "label inference rule", source="AGIC section V-A")

    def parts(self) -> Parts:
        return Parts(
            start=self.start,
            labels=self.labels,
            distance=L2(),
            optimizer=Adam(lr=self.lr, schedule="steps"),
            box=True,
            **self.common(),
        )


@register("idlg")
class IDLG(DLG):
    """DLG with labels inferred from the signs of the classifier's gradient.

    The rule is exact for one sample. For a batch of N samples it takes the N most negative rows, so
    repeated labels are missed.
    """

    source = "Zhao et al. 2020"

    start: Start = parameter(Normal(), "first dummy input", source="iDLG")

    def parts(self) -> Parts:
        return replace(super().parts(), labels="sign")


@register("cpl")
class CPL(QuasiNewtonAttack):
    """L-BFGS from a patterned start, with the label inferred from the classifier's gradient."""

    source = "CPL Algorithm 1 and section 4.1"

    start: Start = parameter(Patterned(), "first dummy input", source="CPL section 4.1")
    labels: LabelRule = parameter(
        "argmin", "label inference rule", source="CPL Algorithm 1, line 9"
    )
    distance: Distance = parameter(L2(), "between gradients", source="CPL Algorithm 1, line 12")
    optimizer: Annotated[OptimizerSpec, nested("optimizer")] = parameter(
        LBFGS(), "optimizer of the dummy input", source="CPL section 3.1"
    )
    alpha: float = parameter(
        0.0,
        "weight of the label term; the paper names no value",
        source="CPL Algorithm 1, line 12",
        ge=0,
    )

    def parts(self) -> Parts:
        return Parts(
            start=self.start,
            labels=self.labels,
            distance=self.distance,
            optimizer=self.optimizer,
            label_term=self.alpha,
            **self.common(),
        )
