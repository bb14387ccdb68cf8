"""Only signs are sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gleak.artifacts.encodings import Encoded, Signs
from gleak.defenses.base import DefenseSpec, Memory
from gleak.registry import register

if TYPE_CHECKING:
    from torch import Generator, Tensor


@register("signsgd")
class SignSGD(DefenseSpec):
    """Every value is replaced by its sign: -1, 0 or 1 (ROG Equation 5).

    The sign of zero is zero, a code of its own, so that the server learns which values vanish
    (those behind a dead ReLU, say); ROG's code sends them as 1, which takes one bit a value. No
    scale is sent: an attacker can compare directions alone, and federated training needs a
    learning rate that suits steps of one.
    """

    source = "Bernstein et al. 2018; ROG Equation 5, Example 1"

    def protect(
        self, update: dict[str, Tensor], generator: Generator, memory: Memory
    ) -> dict[str, Encoded]:
        """See `DefenseSpec.protect`."""
        import torch

        return {
            name: Signs(value.sign().to(torch.int8).numpy()[None]) for name, value in update.items()
        }
