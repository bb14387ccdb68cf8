"""Terms of local training: the loss that clients minimise, and the gradient that they step by."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torch import Tensor, nn

Loss = Literal["cross_entropy", "nll_raw"]


class LocalGradient(ABC):
    """What a client takes its local steps by, where that is not the gradient of the mean loss.

    It belongs to one client and keeps account of the client's steps.

    Args:
        noise_multipliers: of each step so far, the standard deviation of its noise over how far one
            sample can move it; see `gleak.metrics.privacy`.
    """

    noise_multipliers: list[float]

    @abstractmethod
    def __call__(
        self,
        model: nn.Module,
        parameters: dict[str, Tensor],
        inputs: Tensor,
        labels: Tensor,
        loss: Loss,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Mean loss over one mini-batch, and for each parameter what takes the gradient's place.

        Random numbers are torch's own, set by the caller to the client's stream.

        Args:
            model: whose own parameters are left as they are.
            parameters: at which gradients are taken, Shape (*shape).
            inputs: Shape (B, *shape).
            labels: Shape (B).
            loss: see `gleak.models.losses`.
        """
