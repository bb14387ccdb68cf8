"""DLG with Adam, the first baseline of AGIC."""

from __future__ import annotations

from typing import Annotated

from typing_extensions import override

from gleak.attacks.matching import MatchingAttack
from gleak.core.registry import nested, register
from gleak.core.spec import parameter
from gleak.matching.distances.euclidean import L2
from gleak.matching.optimizers.first_order import Adam
from gleak.matching.parts import LabelRule, Parts
from gleak.matching.starts.base import StartSpec
from gleak.matching.starts.random_values import Normal


@register("dlg_adam")
class DLGAdam(MatchingAttack):
    """Adam on the squared distance; L-BFGS often fails to converge on large networks.

    The paper gives it the labels, as it does all attacks it compares, and names no prior; images
    are kept in [0, 1], for a baseline should not be weaker than it need be.
    """

    source = "Zhu et al. 2019, as the baseline of AGIC section V-A"

    iterations: int = parameter(10000, "budget of one victim", source="AGIC section V-A", ge=1)
    lr: float = parameter(0.1, "learning rate at the start", source="AGIC section V-A", gt=0)
    start: Annotated[StartSpec, nested("start")] = parameter(
        Normal(), "first dummy input", source="DLG"
    )
    labels: LabelRule = parameter("rows", "how labels are found", source="AGIC section V-A")

    @override
    def parts(self) -> Parts:
        return Parts(
            start=self.start,
            labels=self.labels,
            distance=L2(),
            optimizer=Adam(lr=self.lr, schedule="steps"),
            box=True,
            **self.common(),
        )
