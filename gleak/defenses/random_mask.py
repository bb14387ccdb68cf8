"""Structured update: only values at random positions are learned and sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import override

from gleak.artifacts.encodings import Encoded
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.defenses.base import DefenseSpec, Memory
from gleak.defenses.sparsity import counted, exact, pack

if TYPE_CHECKING:
    from torch import Generator, Tensor


@register("random_mask")
class RandomMask(DefenseSpec):
    """Each parameter's update is restricted to positions drawn anew for each client and round.

    A client learns the entries under its mask and no others, so what lies elsewhere is lost and
    what is sent is not scaled up, unlike in a subsampled (sketched) update. We mask the update of
    the whole parameter, which is what a client learns under the mask in one local step. The client
    could send the seed of its mask; the server knows the positions either way.
    """

    source = "Konecny et al. 2016 section 2; CPL section 2.1"

    keep: float = parameter(0.25, "share of values that is sent", gt=0, le=1)

    @override
    def protect(
        self, update: dict[str, Tensor], generator: Generator, memory: Memory
    ) -> dict[str, Encoded]:
        """At least one value of each parameter is sent."""
        return {name: pack(value, self._mask(value, generator)) for name, value in update.items()}

    def _mask(self, value: Tensor, generator: Generator) -> np.ndarray:
        """Which values are sent in each round, equally many in all; Shape (R, M)."""
        import torch

        rounds, size = len(value), value[0].numel()
        mask = np.zeros((rounds, size), dtype=bool)
        for row in mask:
            drawn = torch.randperm(size, generator=generator).numpy()
            row[drawn[: counted(exact(self.keep), size)]] = True
        return mask
