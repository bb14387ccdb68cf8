"""Only signs are sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from gleak.artifacts.encodings import Encoded, Signs
from gleak.core.registry import register
from gleak.defenses.base import DefenseSpec, Memory
from gleak.defenses.lengths import lengths, scaled

if TYPE_CHECKING:
    from torch import Generator, Tensor


@register("signsgd")
class SignSGD(DefenseSpec):
    """Every value is replaced by its sign: -1, 0 or 1 (ROG Equation 5).

    The sign of zero is zero, a code of its own, so that the server learns which values vanish
    (those behind a dead ReLU, say); ROG's code sends them as 1, which takes one bit a value. No
    scale is sent: an attacker can compare directions alone, and federated training needs a
    learning rate that suits steps of one. A gradient and a difference of weights have opposite
    signs and are hidden alike.
    """

    source = "Bernstein et al. 2018; ROG Equation 5, Example 1"

    @override
    def at_sent_length(self, update: dict[str, Tensor]) -> dict[str, Tensor]:
        """The square root of how many values are not zero."""
        import torch

        counts = [value.reshape(len(value), -1).count_nonzero(1) for value in update.values()]
        own = lengths(update)
        factors = torch.where(own > 0, torch.stack(counts).sum(0).sqrt() / own, 1.0)
        return {name: scaled(value, factors) for name, value in update.items()}

    @override
    def protect(
        self, update: dict[str, Tensor], generator: Generator, memory: Memory
    ) -> dict[str, Encoded]:
        import torch

        return {
            name: Signs(value.sign().to(torch.int8).numpy()[None]) for name, value in update.items()
        }
