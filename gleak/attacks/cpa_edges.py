"""The cocktail party on edges: independent components of the differences between pixels."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from typing_extensions import override

from gleak.attacks.input_unmixing import InputUnmixing
from gleak.attacks.summary import LABELS, AttackSummary
from gleak.core.registry import register
from gleak.core.spec import parameter

if TYPE_CHECKING:
    from gleak.observation import Observation
    from gleak.runtime.checkpointing import Part
    from gleak.unmixing.mixtures import Mixture, Sources, Unmixing


@register("cpa_edges")
class CPAEdges(InputUnmixing):
    """CPA's idea on better signals: images' differences from pixel to pixel, not their intensities.

    Intensities of natural images are close to Gaussian and alike from image to image; their
    differences are sparse, in all colours at the same places, and those of different images have
    little to do with each other. So plain independent component analysis separates them, without
    weights to tune: FastICA's fixed point, then the maximum of a likelihood that does not ask for
    uncorrelated sources (see `gleak.unmixing.independent_components`).

    An image of one colour has no differences. It is told by what is left where those of the other
    images vanish, and its gradient is then computed, for each label it may have, and taken away
    (see `gleak.unmixing.edges`). Of several local steps its gradient is not known: then the
    other images come out with a share of it. Of several images of one colour none is found.
    """

    source = "ours, after CPA section III; Hyvarinen and Oja 2000; Ablin et al. 2018"
    modalities: ClassVar[frozenset[str]] = frozenset({"image"})

    power: float = parameter(
        0.5, "of the differences' magnitude in the likelihood", source="ours", gt=0, le=1
    )

    @override
    def traits(self) -> AttackSummary:
        return AttackSummary(
            losses=("likelihood of edges",),
            optimizers=("fixed point", "quasi-Newton"),
            labels=LABELS["argmin"],
        )

    @override
    def separate(self, observation: Observation) -> Sources:
        """Images of one colour are found apart from the others."""
        from gleak.attacks.flat_images import find_flat_images, remove, with_flat_images
        from gleak.unmixing.mixtures import visible_sources

        mixture, samples = self.mixture(observation), observation.batch_size
        found = find_flat_images(observation, mixture)
        if self.counted == "spectrum" or not found:
            return super().separate(observation)
        rest = remove(observation, mixture, found)
        counts = [
            min(count, samples - (victim in found))
            for victim, count in enumerate(visible_sources(rest, samples))
        ]
        sources = self.separate_counted(observation, rest, counts, samples)
        return with_flat_images(sources, counts, found)

    @override
    def unmix(self, mixture: Mixture, count: int, shape: tuple[int, ...], part: Part) -> Unmixing:
        from gleak.unmixing.edges import white_differences
        from gleak.unmixing.independent_components import (
            LAPLACIAN,
            Contrast,
            fixed_point,
            maximise_likelihood,
        )
        from gleak.unmixing.mixtures import Unmixing

        white, transform = white_differences(mixture.weight, count, shape)
        first = fixed_point(white, LAPLACIAN)
        found = maximise_likelihood(white, first, Contrast(self.power, smoothing=0.1))
        return Unmixing(found.matrices.double() @ transform, found.iterations, found.objective)
