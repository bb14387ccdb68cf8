"""L-BFGS on many independent problems at once, each with its own history."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.matching.optimizers.base import OptimizerSpec, OptimizerState

if TYPE_CHECKING:
    from torch import Tensor


@register("lbfgs")
class LBFGS(OptimizerSpec):
    """Limited-memory BFGS with a fixed step, as `torch.optim.LBFGS` takes it without a line search.

    One iteration is ``inner`` evaluations, which is how papers that use torch's optimiser count.
    """

    lr: float = parameter(
        1.0, "step along the quasi-Newton direction", source="CPL section 4.1", gt=0
    )
    history: int = parameter(
        100, "pairs of steps and gradient changes kept", source="torch default", ge=1
    )
    inner: int = parameter(20, "evaluations in one iteration", source="torch default", ge=1)

    @property
    def evaluations_per_iteration(self) -> int:
        """Evaluations that count as one iteration."""
        return self.inner

    def bytes_per_unknown(self) -> int:
        """Two vectors for each pair kept."""
        return 8 * self.history + 32

    def begin(self, points: Tensor, iterations: int) -> OptimizerState:
        """Start with empty histories; see `OptimizerSpec.begin`."""
        from gleak.matching.quasi_newton import LBFGSState

        return LBFGSState(points, self.lr, min(self.history, iterations * self.inner))
