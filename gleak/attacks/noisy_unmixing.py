"""The computations of the attack `cpa_noisy`, victim by victim."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import linear_sum_assignment

from gleak.attacks.first_layer import output_slopes, scaled_layer
from gleak.attacks.matching.label_inference import (
    classifier_gradient,
    classifier_of,
    infer_by_argmin,
)
from gleak.attacks.matching.problem import mean_gradients
from gleak.attacks.unmixing.image_prior import Denoised, ImagePrior
from gleak.attacks.unmixing.mixtures import Mixture, by_bias
from gleak.attacks.unmixing.noisy_mixtures import (
    Expected,
    NoisyMixture,
    estimate_images,
    estimate_outputs,
    observe_noise,
    regress,
    smooth,
)
from gleak.core.lazy import torch
from gleak.models.layer_search import Scaling
from gleak.runtime.checkpointing import Journal
from gleak.runtime.progress import Progress
from gleak.runtime.seeding import torch_stream

if TYPE_CHECKING:
    from gleak.attacks.cpa_noisy import CPANoisy
    from gleak.attacks.observation import Observation

PARTS = ("weight", "bias")
FIRST_ERROR = 0.05
"""Standard deviation assumed for the error of separated intensities."""
DRAWS = 64
"""Number of draws of each image's error."""
UNEXPLAINED = 1e-3
"""Variance of output gradients that their model leaves unexplained, relative to their power."""
TINY = 1e-30


@dataclass(frozen=True)
class Unmixed:
    """Samples of one victim.

    Args:
        samples: in [0, 1]; Shape (N, F).
        labels: Shape (N).
        misfit: see `gleak.attacks.unmixing.noisy_mixtures.OutputGradients`.
    """

    samples: torch.Tensor
    labels: torch.Tensor
    misfit: float


@dataclass(frozen=True)
class FirstLayer:
    """The dense layer that takes the samples, and what the network makes of its outputs.

    Args:
        observation: gives the network, the loss and the classes.
        name: of the layer.
        scaling: of the samples before it.
        weight: in double precision; Shape (neurons, F).
        bias: Shape (neurons).
    """

    observation: Observation
    name: str
    scaling: Scaling
    weight: torch.Tensor
    bias: torch.Tensor

    def outputs(self, inputs: torch.Tensor) -> torch.Tensor:
        """Compute the layer's outputs; Shape (N, F) to (N, neurons)."""
        return torch.nn.functional.linear(inputs, self.weight, self.bias)

    def slopes(
        self, inputs: torch.Tensor, outputs: torch.Tensor, labels: torch.Tensor
    ) -> torch.Tensor:
        """Compute the loss's derivatives at outputs of the layer.

        Args:
            inputs: of the layer, for what bypasses it; Shape (..., F).
            outputs: Shape (..., neurons).
            labels: Shape (...).

        Returns:
            Shape (..., neurons).
        """
        samples = self.scaling.samples_of(inputs).expand(*labels.shape, -1).flatten(0, -2)
        found = output_slopes(
            self.observation,
            self.name,
            samples.unflatten(1, self.observation.input_shape),
            labels.flatten(),
            outputs.flatten(0, -2),
        )
        return found.view_as(outputs).to(outputs)

    def labels(self, inputs: torch.Tensor, gradients: torch.Tensor) -> torch.Tensor:
        """Assign the labels of the batch to the samples by the direction of their derivatives.

        Args:
            inputs: of the layer; Shape (N, F).
            gradients: observed at the outputs, up to a common factor; Shape (neurons, N).
        """
        classes = torch.arange(self.observation.classes, device=inputs.device)
        outputs = self.outputs(inputs)[:, None].expand(-1, len(classes), -1)
        candidates = self.slopes(inputs[:, None], outputs, classes.expand(len(inputs), -1))
        similarity = torch.nn.functional.cosine_similarity(candidates, gradients.T[:, None], dim=2)
        nearest = candidates[torch.arange(len(inputs)), similarity.argmax(1)]
        batch = self.batch_labels(inputs, _factor(nearest.T, gradients))
        _, order = linear_sum_assignment(-similarity[:, batch].cpu().numpy())
        return batch[torch.from_numpy(order)]

    def batch_labels(self, inputs: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
        """Infer the labels of the batch, in no order, from the classifier's gradient; Shape (N).

        Args:
            inputs: of the layer, which give the predicted probabilities; Shape (N, F).
            factor: of the samples' gradients in the observed one.
        """
        seen = self.observation
        scores = classifier_gradient(classifier_of(seen), mean_gradients(seen))
        if seen.protocol.loss == "cross_entropy":
            samples = self.scaling.samples_of(inputs).unflatten(1, seen.input_shape)
            logits = seen.model(samples.to(scores))
            scores = scores - factor * logits.softmax(1).sum(0)
        return infer_by_argmin(scores, len(inputs))[0]

    def expected(
        self,
        found: Denoised,
        labels: torch.Tensor,
        gradients: torch.Tensor,
        stream: torch.Generator,
    ) -> Expected:
        """Compute mean and variance of the derivatives at the outputs, given uncertain inputs.

        A neuron whose output is close to zero may be active or not. Clients may have scaled their
        gradient: the common factor is that of the observed derivatives.

        Args:
            found: inputs of the layer.
            labels: Shape (N).
            gradients: see `labels`.
            stream: of random numbers.
        """
        errors = (found.covariance.diagonal().clamp(min=0) / found.images.shape[1]).sqrt()
        spread = errors[:, None] * self.weight.norm(dim=1)
        noise = torch.randn(DRAWS, *spread.shape, generator=stream).to(spread)
        outputs = self.outputs(found.images) + spread * noise
        slopes = self.slopes(found.images, outputs, labels.expand(DRAWS, -1))
        mean, variance = slopes.mean(0).T, slopes.var(0).T
        factor, unexplained = _factor(mean, gradients), UNEXPLAINED * mean.square().mean()
        return Expected(factor * mean, factor.square() * (variance + unexplained) + TINY)


def _factor(gradients: torch.Tensor, observed: torch.Tensor) -> torch.Tensor:
    """Compute the factor between observed gradients and those of the samples' losses."""
    return (observed * gradients).sum() / gradients.square().sum().clamp(min=TINY)


def unmix_victims(
    attack: CPANoisy, observation: Observation, counts: Sequence[int]
) -> list[Unmixed]:
    """Unmix every victim; finished victims are stored.

    Args:
        attack: its number of turns.
        observation: of the victims.
        counts: number of samples of each.
    """
    part, found = observation.journal.part(), []
    with Progress(len(counts), "victims") as progress:
        for victim, count in enumerate(counts):
            progress.advance()
            own = part.part(str(victim))
            if not own.stored:
                own.keep(vars(unmix_victim(attack, observation.of_victim(victim), count)))
                part.save_if_due()
            found.append(_restored(own.stored))
    return found


def _restored(stored: Mapping[str, np.ndarray]) -> Unmixed:
    """Return what the journal has of a victim."""
    samples, labels = (torch.from_numpy(stored[name]) for name in ("samples", "labels"))
    return Unmixed(samples, labels, float(stored["misfit"]))


def unmix_victim(attack: CPANoisy, observation: Observation, count: int) -> Unmixed:
    """Unmix one victim.

    Args:
        attack: its number of turns.
        observation: of the victim.
        count: N, of samples; with none, there is no result.
    """
    layer = first_layer(observation)
    if not count:
        return Unmixed(layer.weight[:0], torch.zeros(0, dtype=torch.long), 0.0)
    gradients = mean_gradients(observation)
    weight, bias = (gradients[f"{layer.name}.{part}"][0] for part in PARTS)
    mixture = observe_noise(weight, bias, count)
    prior = ImagePrior.natural(observation.input_shape, layer.weight)
    prior = prior.scaled(layer.scaling.gain.double(), layer.scaling.offset.double())
    stream = torch_stream(observation.seed, "cpa_noisy", int(observation.victim_ids[0]))
    found = separate_smoothed(attack, layer, mixture, smooth(mixture, prior))
    turns = improve(layer, mixture, prior, found, stream)
    return next(islice(turns, attack.turns, None))


def first_layer(observation: Observation) -> FirstLayer:
    """Return the first layer of the observed network.

    Raises:
        IncompatibleError: the network does not begin with a dense layer that has a bias.
    """
    name, scaling = scaled_layer(observation.model, observation.input_shape)
    parameters = (observation.model.get_parameter(f"{name}.{part}").double() for part in PARTS)
    return FirstLayer(observation, name, scaling, *parameters)


def separate_smoothed(
    attack: CPANoisy, layer: FirstLayer, mixture: NoisyMixture, weight: torch.Tensor
) -> Denoised:
    """Separate the images of a smoothed gradient by their edges; returns inputs of the layer.

    Args:
        attack: how to separate.
        layer: whose inputs they are.
        mixture: the noisy one, of which the bias is taken.
        weight: its smoothed weight; Shape (neurons, F).
    """
    bias, count = mixture.gradients[:, -1], mixture.samples
    of_samples = Mixture(layer.scaling.gradient_of_samples(weight, bias)[None], bias[None])
    silent = replace(layer.observation, journal=Journal())
    sources = attack.separate_counted(silent, of_samples, [count], count)
    samples = by_bias(sources.values, sources.factors)[0][0]
    errors = FIRST_ERROR**2 * layer.scaling.gain.double().square().sum()
    return Denoised(layer.scaling.of_samples(samples), errors * torch.eye(count).to(samples))


def improve(
    layer: FirstLayer,
    mixture: NoisyMixture,
    prior: ImagePrior,
    found: Denoised,
    stream: torch.Generator,
) -> Iterator[Unmixed]:
    """Yield the samples, then better ones from turn to turn, without end.

    Args:
        layer: whose inputs the images are.
        mixture: the observed gradients.
        prior: of the images.
        found: first images.
        stream: of random numbers.
    """
    while True:
        samples = layer.scaling.samples_of(found.images).clamp(0, 1)
        found = replace(found, images=layer.scaling.of_samples(samples))
        gradients = regress(mixture, found)
        labels = layer.labels(found.images, gradients)
        expected = layer.expected(found, labels, gradients, stream)
        outputs = estimate_outputs(mixture, found, expected)
        yield Unmixed(samples, labels, outputs.misfit)
        found = estimate_images(mixture, outputs, prior)
