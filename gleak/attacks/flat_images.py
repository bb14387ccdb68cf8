"""Images of one colour, found and taken out of what an attacker unmixes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gleak.attacks.first_layer import dense_layer_of_samples, output_slopes
from gleak.unmixing.edges import FlatImage, find_flat_image, without

if TYPE_CHECKING:
    from gleak.observation import Observation
    from gleak.unmixing.mixtures import Mixture, Sources


def find_flat_images(observation: Observation, mixture: Mixture) -> dict[int, FlatImage]:
    """The image of one colour of each victim that has one, by the victim's place."""
    pairs = enumerate(zip(mixture.weight, mixture.bias, strict=True))
    shape, most = observation.input_shape, observation.batch_size
    images = {victim: find_flat_image(*pair, most, shape) for victim, pair in pairs}
    return {victim: image for victim, image in images.items() if image is not None}


def remove(observation: Observation, mixture: Mixture, found: Mapping[int, FlatImage]) -> Mixture:
    """The mixtures without these images."""
    layer = dense_layer_of_samples(observation.model, observation.input_shape)
    for victim, image in found.items():
        sample = image.image.unflatten(0, observation.input_shape).to(mixture.weight)
        slopes = output_slopes(observation, layer, sample).double()
        mixture = without(mixture, victim, image, image.derivatives(slopes))
    return mixture


def with_flat_images(
    sources: Sources, counts: Sequence[int], found: Mapping[int, FlatImage]
) -> Sources:
    """The sources with these images behind the others of their victims.

    Args:
        sources: with a place left for each.
        counts: of each victim's sources that were unmixed.
        found: by the victim's place.
    """
    values, factors = sources.values.clone(), sources.factors.clone()
    for victim, image in found.items():
        values[victim, counts[victim]] = image.image.to(values)
        factors[victim, counts[victim]] = 1
    return replace(sources, values=values, factors=factors)
