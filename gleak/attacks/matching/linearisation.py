"""Residuals of gradient matching at a point, and products with their Jacobian."""

from __future__ import annotations

from collections.abc import Callable

from gleak.core.lazy import torch


class Linearisation:
    """Residuals r of one victim at a point, and products with their Jacobian J.

    J is never formed. A product with its transpose is one backward pass; it is linear in the vector
    that it multiplies, so its derivative by that vector gives the products with J itself.

    Args:
        residuals: differentiable twice; Shape (P) to (R).
        point: Shape (P).
    """

    def __init__(
        self, residuals: Callable[[torch.Tensor], torch.Tensor], point: torch.Tensor
    ) -> None:
        self._function = residuals
        self._point = point.detach().requires_grad_()
        with torch.enable_grad():
            self._residuals = residuals(self._point)
            self._weights = torch.zeros_like(self._residuals, requires_grad=True)
            self._pulled = _derivative(
                self._residuals, self._point, self._weights, create_graph=True
            )
        self.residuals = self._residuals.detach()

    @property
    def slope(self) -> torch.Tensor:
        """Half the gradient of the sum of squared residuals, J^T r; Shape (P)."""
        return self.transposed(self.residuals)

    def moved(self, step: torch.Tensor) -> torch.Tensor:
        """Compute the residuals at another point; Shape (R)."""
        with torch.enable_grad():
            return self._function(self._point + step).detach()

    def times(self, direction: torch.Tensor) -> torch.Tensor:
        """Compute J d for a direction d of Shape (P); Shape (R)."""
        return _derivative(self._pulled, self._weights, direction)

    def transposed(self, weights: torch.Tensor) -> torch.Tensor:
        """Compute J^T w for weights w of Shape (R); Shape (P)."""
        return _derivative(self._residuals, self._point, weights)


def _derivative(
    outputs: torch.Tensor, inputs: torch.Tensor, weights: torch.Tensor, create_graph: bool = False
) -> torch.Tensor:
    """Compute the derivative of <outputs, weights> by the inputs, and keep the graph."""
    (found,) = torch.autograd.grad(
        outputs,
        inputs,
        weights,
        retain_graph=True,
        create_graph=create_graph,
        materialize_grads=True,
    )
    return found
