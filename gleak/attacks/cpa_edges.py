"""The cocktail party on edges: independent components of the differences between pixels."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from gleak.attacks.input_unmixing import InputUnmixing
from gleak.attacks.traits import LABELS, Traits
from gleak.registry import register
from gleak.spec import knob

if TYPE_CHECKING:
    from gleak.runtime.journal import Part
    from gleak.unmixing.mixtures import Mixture
    from gleak.unmixing.sources import Unmixing


@register("cpa_edges")
class CPAEdges(InputUnmixing):
    """CPA's idea on better signals: images' differences from pixel to pixel, not their intensities.

    Intensities of natural images are close to Gaussian and alike from image to image; their
    differences are sparse, in all colours at the same places, and those of different images have
    little to do with each other. So plain independent component analysis separates them, without
    weights to tune: FastICA's fixed point, then the maximum of a likelihood that does not ask for
    uncorrelated sources (see `gleak.unmixing.likelihood`).
    """

    source = "ours, after CPA section III; Hyvarinen and Oja 2000; Ablin et al. 2018"
    modalities: ClassVar[frozenset[str]] = frozenset({"image"})

    power: float = knob(
        0.5, "of the differences' magnitude in the likelihood", source="ours", gt=0, le=1
    )

    def traits(self) -> Traits:
        """See `AttackSpec.traits`."""
        return Traits(
            losses=("likelihood of edges",),
            optimizers=("fixed point", "quasi-Newton"),
            labels=LABELS["argmin"],
        )

    def unmix(self, mixture: Mixture, count: int, shape: tuple[int, ...], part: Part) -> Unmixing:
        """See `UnmixingAttack.unmix`."""
        from gleak.unmixing.contrast import LAPLACIAN, Contrast
        from gleak.unmixing.edges import white_differences
        from gleak.unmixing.fixed_point import fixed_point
        from gleak.unmixing.likelihood import maximise_likelihood
        from gleak.unmixing.sources import Unmixing

        white, transform = white_differences(mixture.weight, count, shape)
        first = fixed_point(white, LAPLACIAN)
        found = maximise_likelihood(white, first, Contrast(self.power, smoothing=0.1))
        return Unmixing(found.matrices.double() @ transform, found.iterations, found.objective)
