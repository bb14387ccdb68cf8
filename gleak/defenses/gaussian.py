"""Additive Gaussian noise."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from gleak.core.registry import register
from gleak.defenses.noise import NoiseSpec

if TYPE_CHECKING:
    from torch import Generator, Tensor


@register("gaussian")
class Gaussian(NoiseSpec):
    """Independent normal noise on every value (CPL section 4.3).

    CPL gives "magnitudes of variance" 1e-4 to 1e-2. We read them as standard deviations: with
    variances as large as 1e-2 no method could do better than chance, at 1e-4 already. MKOR's
    "normalized standard deviation" is ``unit=deviation``, in which ``std`` is relative to each
    tensor's own (see `gleak.defenses.noise.NoiseSpec`).

    With ``unit=value`` a difference of weights, which is local_lr local_steps times as large as a
    gradient, is hidden otherwise than that; ``unit=gradient`` and ``unit=norm`` (the length of the
    noise over that of the update) hide both alike. Without a bound on the update no unit is
    differential privacy, and noise relative to the data least of all: see `dp`.
    """

    source = "CPL section 4.3; MKOR Table 4"

    @override
    def noise(self, like: Tensor, generator: Generator) -> Tensor:
        return like.new_empty(like.shape).normal_(generator=generator)
