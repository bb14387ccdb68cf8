"""Baselines that ignore the update."""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np

from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.base import AttackSpec, AttackSummary
from gleak.attacks.matching.starts import check_granted, check_training_samples
from gleak.attacks.observation import Observation
from gleak.clients.base import ClientSpec
from gleak.core.registry import nested, register
from gleak.core.spec import parameter
from gleak.data.base import DatasetSpec
from gleak.knowledge.tagger import Tagger
from gleak.models.base import ModelSpec
from gleak.runtime.seeding import stream


@register("blind")
class Blind(AttackSpec):
    """The mean training sample with random labels: the baseline without any update."""

    source = 'docs/design.md, "The threat model is the graph"'
    uses_gpu: ClassVar[bool] = False

    @property
    def grants(self) -> frozenset[str]:
        """The mean sample, which describes the population and no single victim."""
        return frozenset({"mean_input"})

    def summary(self) -> AttackSummary:
        return AttackSummary(labels="at random")

    def reconstruct(self, observation: Observation) -> Reconstruction:
        mean = observation.granted["mean_input"].cpu().numpy().clip(0, 1)
        inputs = np.repeat(mean[:, None], observation.batch_size, axis=1)
        return _unread(observation, inputs, _random_labels(observation))


class UnrelatedImages(AttackSpec):
    """Base class of images that have nothing to do with the victims' own: floors of a metric."""

    modalities: ClassVar[frozenset[str]] = frozenset({"image"})
    budget_fields: ClassVar[frozenset[str]] = frozenset({"tagger"})
    uses_gpu: ClassVar[bool] = False

    tagger: Annotated[Tagger, nested("knowledge")] | None = parameter(
        None, "network that tags images for the score jaccard; none: no such score", source="ROG 6"
    )


@register("random_noise")
class RandomNoise(UnrelatedImages):
    """Standard normal noise, cut to [0, 1], with random labels."""

    source = "ROG Table 2, row Random Noise"
    superseded: ClassVar[str] = "a guess without the update, as blind is"

    def summary(self) -> AttackSummary:
        return AttackSummary(labels="at random")

    def reconstruct(self, observation: Observation) -> Reconstruction:
        shape = (observation.batch_size, *observation.input_shape)
        noise = [
            stream(observation.seed, "random noise", int(victim)).standard_normal(shape)
            for victim in observation.victim_ids
        ]
        inputs = np.stack(noise).clip(0, 1)
        return _unread(observation, inputs, _random_labels(observation))


@register("same_class")
class SameClass(UnrelatedImages):
    """Training samples of the victims' classes, which are granted, and none of their own."""

    source = "ROG Table 2, row Same Class Image"

    @property
    def grants(self) -> frozenset[str]:
        return frozenset({"labels", "class_sample"})

    def check(self, dataset: DatasetSpec, model: ModelSpec, client: ClientSpec) -> None:
        super().check(dataset, model, client)
        check_training_samples(self, dataset)

    def summary(self) -> AttackSummary:
        return AttackSummary(labels="granted")

    def reconstruct(self, observation: Observation) -> Reconstruction:
        samples, labels = (
            observation.granted[name].cpu().numpy() for name in ("class_sample", "labels")
        )
        check_granted(self, samples.shape[1])
        return _unread(observation, samples, labels, paired=True)


def _random_labels(observation: Observation) -> np.ndarray:
    """Draw labels of each victim; Shape (V, N)."""
    size = observation.batch_size
    streams = [stream(observation.seed, "blind labels", int(v)) for v in observation.victim_ids]
    return np.stack([own.integers(observation.classes, size=size) for own in streams])


def _unread(
    observation: Observation, inputs: np.ndarray, labels: np.ndarray, paired: bool = False
) -> Reconstruction:
    """Return samples for which the update was not read."""
    converged = np.ones(observation.victims, dtype=bool)
    single = inputs.astype(np.float32)
    return Reconstruction(inputs=single, labels=labels, converged=converged, paired=paired)
