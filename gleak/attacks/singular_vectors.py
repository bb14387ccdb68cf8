"""Leading singular vector of a dense first layer's gradient, and class means: samples in noise."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.base import AttackSummary
from gleak.attacks.first_layer import (
    DenseFirstAttack,
    exact_reconstruction,
)
from gleak.attacks.noisy_first_layer import NoisyVictim, range_tells_scale
from gleak.attacks.observation import Observation
from gleak.attacks.unmixing.noisy_mixtures import regress, smooth
from gleak.clients.base import ClientSpec
from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.models.layer_search import layer_of_samples
from gleak.runtime.seeding import torch_stream


@register("singular_vectors")
class SingularVectors(DenseFirstAttack):
    """Leading singular vector of the first dense layer's gradient; for a batch, means of classes.

    - The gradient of one sample is the product of its derivatives and itself, so the leading right
      singular vector is the sample up to its scale, with the least noise. The scale is that of the
      bias's gradient as far as its noise permits; if weight and bias were scaled apart, as under
      Fed-CDP, it is the largest with which the values stay in [0, 1] (see
      `gleak.attacks.unmixing.noisy_mixtures.scales`). What noise hides is taken from a prior of
      natural images.
    - For a batch the derivatives of a sample are approximated by those of the prior's images with
      its label, and the images follow by regression of the weight's gradient on them: those of one
      class are equal. This is less than unmixing gives, but needs no image to stand out of noise.

    The label is the one whose derivatives are the nearest to those observed; of a batch, labels
    are inferred from the counts of a non-negative regression.
    """

    source = "ours; scale and sign by the bias after Aono et al. 2017"
    modalities: ClassVar[frozenset[str]] = frozenset({"image"})
    takes_batch_statistics: ClassVar[bool] = False

    def check_network(
        self, network: torch.nn.Module, shape: tuple[int, ...], classes: int, client: ClientSpec
    ) -> None:
        super().check_network(network, shape, classes, client)
        neurons = len(network.get_parameter(f"{layer_of_samples(network, shape)[0]}.bias"))
        if client.batch_size >= neurons:
            raise IncompatibleError(
                f"attack {self} measures the noise in a first dense layer with more neurons than "
                f"samples: {client.batch_size} and {neurons}; use a smaller batch_size or cpa_edges"
            )

    def keeps_samples(self, observation: Observation) -> bool:
        return range_tells_scale(observation)

    def summary(self) -> AttackSummary:
        return AttackSummary(
            terms=("prior of natural images",), labels="by derivatives of the first layer"
        )

    def reconstruct(self, observation: Observation) -> Reconstruction:
        victims = [read_victim(observation.of_victim(row)) for row in range(observation.victims)]
        samples, labels = map(torch.stack, zip(*victims, strict=True))
        return replace(exact_reconstruction(observation, samples, labels), paired=True)


def read_victim(observation: Observation) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute samples of one victim, Shape (N, F), not finite without a gradient; and labels."""
    victim = NoisyVictim.of(observation, observation.batch_size)
    if not victim.mixture.weight.any():
        nothing = torch.full_like(victim.bounds[:1], torch.nan)
        samples = nothing.expand(observation.batch_size, -1)
        return samples, torch.zeros(len(samples), dtype=torch.long, device=samples.device)
    return read_sample(victim) if observation.batch_size == 1 else read_classes(victim)


def read_sample(victim: NoisyVictim) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the sample of one victim, Shape (1, F), and its label, Shape (1)."""
    rows = torch.ones(1, 1).to(victim.bounds)
    images = victim.images(victim.scaled(rows, smooth(victim.mixture, victim.prior)))
    derivatives = regress(victim.mixture, images)
    labels = victim.layer.labels(images.images, derivatives, victim.mixture)
    return victim.layer.scaling.samples_of(images.images), labels


def read_classes(victim: NoisyVictim) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the means of one victim's classes, Shape (N, F), and its labels, Shape (N)."""
    seed = victim.layer.observation.seed
    classes = victim.of_classes(torch_stream(seed, "singular_vectors"))
    return victim.layer.scaling.samples_of(victim.images(classes.outputs).images), classes.labels
