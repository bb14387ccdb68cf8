"""The cocktail party attack on edges: independent components of differences between pixels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from typing_extensions import override

from gleak.attacks.attack_summary import LABELS, AttackSummary
from gleak.attacks.unmixing_attack import InputUnmixing
from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.core.spec import parameter

if TYPE_CHECKING:
    from gleak.attacks.observation import Observation
    from gleak.attacks.unmixing.edges import FlatImage
    from gleak.attacks.unmixing.mixtures import Mixture, Sources, Unmixing
    from gleak.runtime.checkpointing import Part


@register("cpa_edges")
class CPAEdges(InputUnmixing):
    """CPA on better signals: the differences between neighbouring pixels instead of intensities.

    Intensities of natural images are close to Gaussian and similar across images. Their differences
    are sparse, at the same places in all colours, and nearly independent across images. Plain
    independent component analysis therefore separates them, without weights to tune: FastICA's
    fixed point, then the maximum of a likelihood that does not require uncorrelated sources (see
    `gleak.attacks.unmixing.independent_components`).

    An image of one colour has no differences. It is found in the residual where the differences of
    all other images vanish; then its gradient is computed, for each label it may have, and
    subtracted (see `gleak.attacks.unmixing.edges`). For several local steps its gradient is
    unknown, so the other images contain a share of it. Of several images of one colour none is
    found.
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
        """Recover the samples, images of one colour first."""
        from gleak.attacks.unmixing.mixtures import visible_sources

        mixture, samples = self.mixture(observation), observation.batch_size
        found = find_flat_images(observation, mixture)
        if self.counted == "spectrum" or not found:
            return super().separate(observation)
        rest = without_flat_images(observation, mixture, found)
        counts = [
            min(count, samples - (victim in found))
            for victim, count in enumerate(visible_sources(rest, samples))
        ]
        sources = self.separate_counted(observation, rest, counts, samples)
        return with_flat_images(sources, counts, found)

    @override
    def unmix(self, mixture: Mixture, count: int, shape: tuple[int, ...], part: Part) -> Unmixing:
        from gleak.attacks.unmixing.edges import white_differences
        from gleak.attacks.unmixing.independent_components import (
            LAPLACIAN,
            Contrast,
            fixed_point,
            maximise_likelihood,
        )
        from gleak.attacks.unmixing.mixtures import Unmixing

        white, transform = white_differences(mixture.weight, count, shape)
        first = fixed_point(white, LAPLACIAN)
        found = maximise_likelihood(white, first, Contrast(self.power, smoothing=0.1))
        return Unmixing(found.matrices.double() @ transform, found.iterations, found.objective)


def find_flat_images(observation: Observation, mixture: Mixture) -> dict[int, FlatImage]:
    """Return the image of one colour of each victim that has one, by the victim's index."""
    from gleak.attacks.unmixing.edges import find_flat_image

    pairs = enumerate(zip(mixture.weight, mixture.bias, strict=True))
    shape, most = observation.input_shape, observation.batch_size
    images = {victim: find_flat_image(*pair, most, shape) for victim, pair in pairs}
    return {victim: image for victim, image in images.items() if image is not None}


def without_flat_images(
    observation: Observation, mixture: Mixture, found: Mapping[int, FlatImage]
) -> Mixture:
    """Subtract the gradients of these images from the mixtures."""

    from gleak.attacks.first_layer import dense_layer_of_samples, output_slopes
    from gleak.attacks.unmixing.edges import without

    shape, labels = observation.input_shape, torch.arange(observation.classes)
    layer = dense_layer_of_samples(observation.model, shape)
    for victim, image in found.items():
        copies = image.image.unflatten(0, shape).expand(len(labels), *shape)
        slopes = output_slopes(observation, layer, copies, labels).double()
        mixture = without(mixture, victim, image, image.derivatives(slopes))
    return mixture


def with_flat_images(
    sources: Sources, counts: Sequence[int], found: Mapping[int, FlatImage]
) -> Sources:
    """Insert these images after the other sources of their victims.

    Args:
        sources: with an unused source for each of them.
        counts: number of sources of each victim that were unmixed.
        found: images by the victim's index.
    """
    values, factors = sources.values.clone(), sources.factors.clone()
    for victim, image in found.items():
        values[victim, counts[victim]] = image.image.to(values)
        factors[victim, counts[victim]] = 1
    return replace(sources, values=values, factors=factors)
