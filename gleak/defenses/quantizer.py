"""What defences that send whole numbers in place of values have in common."""

from __future__ import annotations

from abc import abstractmethod
from functools import partial
from typing import TYPE_CHECKING

from typing_extensions import override

from gleak.artifacts.encodings import Encoded, Quantized
from gleak.core.spec import parameter
from gleak.defenses.base import DefenseSpec, Memory
from gleak.defenses.sparsity import Scope

if TYPE_CHECKING:
    from torch import Generator, Tensor


class QuantizerSpec(DefenseSpec):
    """Every value is sent as one of 2s + 1 levels: Q(g_i) = (||g||_p / s) sign(g_i) xi_i.

    This is ROG's Equation 6 with kappa = 1; xi_i is a whole number from 0 to s, next to
    s |g_i| / ||g||_p. The sign takes one of the bits, so s = 2^(bits - 1) - 1: three bits make
    seven levels, and the eighth pattern is not used. (The authors' code counts the levels of one
    sign, zero among them; it does not say how many three bits are.) Sent are the codes
    sign(g_i) xi_i, and ||g||_p / s for each tensor. A g of zeros stays as it is. Levels are
    relative to g, so a gradient and a difference of weights are rounded alike.
    """

    bits: int = parameter(3, "of a code, its sign included", source="ROG section 4.3", ge=2, le=8)
    scope: Scope = parameter(
        "tensor", "what g is: each tensor, or all of a round as one vector", source="ROG's code"
    )

    @property
    def steps(self) -> int:
        """How many levels a sign has beside zero: s in ROG's Equation 6."""
        return 2 ** (self.bits - 1) - 1

    @property
    @abstractmethod
    def order(self) -> float:
        """The p of the norm; infinity takes the largest magnitude."""

    @abstractmethod
    def rounded(self, levels: Tensor, generator: Generator) -> Tensor:
        """Whole numbers next to magnitudes that are counted in levels, xi; Shape as given."""

    @override
    def protect(
        self, update: dict[str, Tensor], generator: Generator, memory: Memory
    ) -> dict[str, Encoded]:
        norms = self._norms(update)
        return {name: self._send(value, norms[name], generator) for name, value in update.items()}

    def _norms(self, update: dict[str, Tensor]) -> dict[str, Tensor]:
        """For each parameter the norm of what it is compared with, in double precision; (R)."""
        import torch

        norm = partial(torch.linalg.vector_norm, ord=self.order, dtype=torch.float64)
        own = {name: norm(value.reshape(len(value), -1), dim=1) for name, value in update.items()}
        if self.scope == "tensor":
            return own
        return dict.fromkeys(own, norm(torch.stack(list(own.values())), dim=0))

    def _send(self, value: Tensor, norm: Tensor, generator: Generator) -> Quantized:
        import torch

        norm = norm.to(value.dtype)
        of_round = norm.reshape(-1, *[1] * (value.ndim - 1))
        shares = torch.where(of_round > 0, value.abs() / of_round, 0)
        numbers = self.rounded(self.steps * shares, generator).clamp(max=self.steps)
        codes = (value.sign() * numbers).to(torch.int8)
        return Quantized(codes.numpy()[None], (norm / self.steps).numpy()[None])
