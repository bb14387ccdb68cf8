"""Loss of local training, and the interface of substitutes for its gradient."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal

from gleak.core.lazy import torch

Loss = Literal["cross_entropy", "nll_raw"]


class LocalGradient(ABC):
    """Substitute for the gradient of the mean loss in the local steps of one client.

    It belongs to one client and records an account of the client's steps.

    Args:
        noise_multipliers: for each step so far, the standard deviation of its noise over the
            largest change by one sample; see `gleak.metrics.epsilon`.
    """

    noise_multipliers: list[float]

    @abstractmethod
    def __call__(
        self,
        model: torch.nn.Module,
        parameters: dict[str, torch.Tensor],
        inputs: torch.Tensor,
        labels: torch.Tensor,
        loss: Loss,
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Compute the mean loss over one mini-batch and the substitute for each gradient.

        Random numbers are drawn from torch's global generator, which the caller sets to the
        client's stream.

        Args:
            model: its own parameters are not changed.
            parameters: parameters at which gradients are computed, Shape (*shape).
            inputs: Shape (B, *shape).
            labels: Shape (B).
            loss: see `gleak.models.differentiation`.

        Returns:
            Mean loss, and by parameter the substitute for its gradient.

        Raises:
            IncompatibleError: a layer is not supported.
        """
