"""A dense first layer in noise: what one victim's gradient says about its samples."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from gleak.attacks.first_layer import classifier_scores, clipped_apart, output_slopes
from gleak.attacks.matching.label_inference import infer_by_argmin
from gleak.attacks.matching.problem import mean_gradients
from gleak.attacks.observation import Observation
from gleak.attacks.unmixing import noisy_mixtures
from gleak.attacks.unmixing.noisy_mixtures import (
    Expected,
    NoisyMixture,
    OutputGradients,
)
from gleak.core.lazy import torch
from gleak.data.natural_images import Denoised, ImagePrior
from gleak.models.layer_search import Scaling, layer_of_samples

PARTS = ("weight", "bias")
DRAWS = 64
"""Number of draws of each image's error."""
UNEXPLAINED = 1e-3
"""Variance of output gradients that their model leaves unexplained, relative to their power."""
PLAIN = 3.0
"""Standard deviations within which a factor is taken for that of a plain mean of gradients."""
BRIGHTNESS = 0.3
"""Standard deviation of a photograph's mean value, relative to the mean of all."""
MISTAKEN = 0.05
"""Error of predicted probabilities."""
ROUNDING = 1e-6
TINY = 1e-30


def range_tells_scale(observation: Observation) -> bool:
    """Return True if clients clip each parameter of each sample's gradient by itself.

    Then hardly anything but the range of its values tells the scale of a sample, but for the
    parameters that were not clipped (`gleak.attacks.matching.likely_scale`).
    """
    return observation.protocol.shows_gradient and observation.protocol.clipping == "parameter"


@dataclass(frozen=True)
class FirstLayer:
    """The dense layer that takes the samples, and what the network makes of its outputs.

    Samples are scaled before the layer. Its weight, Shape (neurons, F), and bias, Shape (neurons),
    are in double precision.
    """

    observation: Observation
    name: str
    scaling: Scaling
    weight: torch.Tensor
    bias: torch.Tensor

    @classmethod
    def of(cls, observation: Observation) -> Self:
        """Return the layer of a model.

        Raises:
            IncompatibleError: the network does not begin with a dense layer that has a bias.
        """
        name, scaling = layer_of_samples(observation.model, observation.input_shape)
        weight, bias = (
            observation.model.get_parameter(f"{name}.{part}").double() for part in PARTS
        )
        return cls(observation, name, scaling, weight, bias)

    def outputs(self, inputs: torch.Tensor) -> torch.Tensor:
        """Compute the layer's outputs; Shape (N, F) to (N, neurons)."""
        return torch.nn.functional.linear(inputs, self.weight, self.bias)

    def slopes(
        self, inputs: torch.Tensor, outputs: torch.Tensor, labels: torch.Tensor
    ) -> torch.Tensor:
        """Compute the loss's derivatives at outputs of the layer; Shape (..., neurons).

        Its inputs, Shape (..., F), are for what bypasses it.
        """
        samples = self.scaling.samples_of(inputs).expand(*labels.shape, -1).flatten(0, -2)
        slopes = output_slopes(
            self.observation,
            self.name,
            samples.unflatten(1, self.observation.input_shape),
            labels.flatten(),
            outputs.flatten(0, -2),
        )
        return slopes.view_as(outputs).to(outputs)

    def labels(
        self, inputs: torch.Tensor, gradients: torch.Tensor, mixture: NoisyMixture
    ) -> torch.Tensor:
        """Infer the label of every sample, given inputs of the layer, Shape (N, F).

        The direction of a sample's derivatives tells its label, and the classifier's gradient those
        of the batch, less the probabilities predicted for the images. Noise may hide either: of the
        best labels by both and by the derivatives alone, the more probable ones are chosen.

        Args:
            inputs: approximate.
            gradients: those observed at the outputs, up to factors; Shape (neurons, N).
            mixture: gives the noise.
        """
        from scipy.optimize import linear_sum_assignment

        classes = torch.arange(self.observation.classes, device=inputs.device)
        outputs = self.outputs(inputs)[:, None].expand(-1, len(classes), -1)
        candidates = self.slopes(inputs[:, None], outputs, classes.expand(len(inputs), -1))
        similarity = torch.nn.functional.cosine_similarity(candidates, gradients.T[:, None], dim=2)
        unlike = 1 - similarity.clamp(0, 1).square()
        fit = -len(gradients) / 2 * unlike.clamp(min=ROUNDING).log()
        rows, nearest = torch.arange(len(inputs)), similarity.argmax(1)
        factor = factor_of(candidates[rows, nearest].T, mixture.gains * gradients)
        scores = self.unpredicted(inputs, factor)
        batch = infer_by_argmin(scores[None], len(inputs))[0]
        _, order = linear_sum_assignment(-fit[:, batch].cpu().numpy())
        noise = mixture.bias_noise_share**2 * scores.square().mean() + (MISTAKEN * factor) ** 2

        def probability(labels: torch.Tensor) -> float:
            counts = torch.nn.functional.one_hot(labels, len(classes)).sum(0)
            misfit = (scores + factor * counts).square().sum() / (2 * noise)
            return float(fit[rows, labels].sum() - misfit)

        return max(batch[torch.from_numpy(order)], nearest, key=probability)

    def unpredicted(self, inputs: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
        """Compute the gradient of the classifier's bias less the part that its outputs predict.

        Minus the number of labels of each class is left, times the factor of the samples' gradients
        in the observed one; Shape (classes).
        """
        seen, scores = self.observation, classifier_scores(self.observation)[0]
        if seen.protocol.loss != "cross_entropy":
            return scores
        samples = self.scaling.samples_of(inputs).unflatten(1, seen.input_shape)
        return scores - factor * seen.model(samples.to(scores)).softmax(1).sum(0)

    def moments(
        self, images: Denoised, labels: torch.Tensor, stream: torch.Generator
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute mean and variance of the derivatives at the outputs, given uncertain inputs.

        A neuron whose output is close to zero may be active or not. Shape (neurons, N) each.
        """
        errors = (images.covariance.diagonal().clamp(min=0) / images.images.shape[1]).sqrt()
        spread = errors[:, None] * self.weight.norm(dim=1)
        noise = torch.randn(DRAWS, *spread.shape, generator=stream, dtype=torch.float32).to(spread)
        outputs = self.outputs(images.images) + spread * noise
        slopes = self.slopes(images.images, outputs, labels.expand(DRAWS, -1))
        return slopes.mean(0).T, slopes.var(0).T


def factor_of(
    gradients: torch.Tensor, observed: torch.Tensor, axes: int | tuple[int, ...] = (0, 1)
) -> torch.Tensor:
    """Compute the factor between observed gradients and those of the samples' losses."""
    return (observed * gradients).sum(axes) / gradients.square().sum(axes).clamp(min=TINY)


@dataclass(frozen=True)
class NoisyVictim:
    """One victim's gradients of a dense layer in noise, and the images that it takes.

    Args:
        layer: the layer.
        mixture: the victim's gradients and their noise.
        prior: of the layer's inputs.
        bounds: least and largest input; Shape (2, F).
    """

    layer: FirstLayer
    mixture: NoisyMixture
    prior: ImagePrior
    bounds: torch.Tensor

    @classmethod
    def of(cls, observation: Observation, samples: int) -> Self:
        """Return what the observation of one victim says about so many samples."""
        layer, gradients = FirstLayer.of(observation), mean_gradients(observation)
        weight, bias = (gradients[f"{layer.name}.{part}"][0] for part in PARTS)
        apart = clipped_apart(observation, weight, bias)
        mixture = noisy_mixtures.observe_noise(
            weight, bias, samples, bool(observation.cells), scaled_apart=apart
        )
        gain, offset = layer.scaling.gain.double(), layer.scaling.offset.double()
        prior = ImagePrior.natural(observation.input_shape, layer.weight).scaled(gain, offset)
        return cls(layer, mixture, prior, layer.scaling.bounds.to(layer.weight))

    def scaled(self, rows: torch.Tensor, components: torch.Tensor) -> OutputGradients:
        """Scale the sources that rows separate from components, and return their derivatives."""
        factors = noisy_mixtures.scales(
            self.mixture, rows, rows @ components, self.prior, *self.bounds
        )
        mean = self.mixture.directions @ torch.linalg.inv(factors * rows)
        return OutputGradients(mean, torch.zeros_like(rows), 0.0)

    def images(self, outputs: OutputGradients) -> Denoised:
        """Compute the posterior of the images, which fill their range if scales are unknown."""
        images = noisy_mixtures.estimate_images(self.mixture, outputs, self.prior)
        if not self.mixture.scaled_apart:
            return images
        factors = noisy_mixtures.filling(images.images, *self.bounds)
        return replace(images, images=factors * images.images)

    def expected(
        self,
        images: Denoised,
        labels: torch.Tensor,
        guess: torch.Tensor,
        stream: torch.Generator,
    ) -> Expected:
        """Compute mean and variance of the derivatives that were sent, given uncertain images.

        A client may have scaled gradients. If it has scaled each parameter and sample by itself,
        the factors are those of the derivatives by regression. Otherwise they are equal, and
        follow from the bias and a ``guess``; the images do not count, since their scale would
        follow the factor's error, turn by turn. A factor that may be that of the mean of gradients
        as it is, 1/N, is taken to be that.
        """
        mean, variance = self.layer.moments(images, labels, stream)
        if self.mixture.scaled_apart:
            factor = factor_of(mean, noisy_mixtures.regress(self.mixture, images), 0)
        else:
            total, noise = mean.sum(1), self.mixture.bias_variance
            prior = 1 / (BRIGHTNESS * guess).square() * self.mixture.samples
            precision = prior + total.square().sum() / noise
            factor = (prior * guess + (self.mixture.bias * total).sum() / noise) / precision
            plain = torch.ones_like(factor) / self.mixture.samples
            near = PLAIN * precision.rsqrt() + MISTAKEN * plain
            factor = torch.where((factor - plain).abs() < near, plain, factor)
        unexplained = UNEXPLAINED * mean.square().mean()
        return Expected(factor * mean, factor.square() * (variance + unexplained) + TINY)

    def of_classes(self, stream: torch.Generator) -> Classes:
        """Approximate derivatives by those of the prior's images, and infer labels by them.

        The weight's gradient along the mean image is a sum of the derivatives for each class, with
        the number of its samples, as is the bias's: labels and factor follow from a regression
        without negative counts.
        """
        from scipy.optimize import nnls

        samples, device = self.mixture.samples, self.bounds.device
        classes = torch.arange(self.layer.observation.classes, device=device)
        images = self.prior.mean.expand(len(classes), -1)
        spread = self.prior.variances.sum() * torch.eye(len(classes)).to(images)
        mean, variance = self.layer.moments(Denoised(images, spread), classes, stream)
        seen = noisy_mixtures.regress(
            self.mixture.as_one(), Denoised(images[:1], 0 * spread[:1, :1])
        )[:, 0]
        counts = torch.from_numpy(nnls(mean.cpu().numpy(), seen.cpu().numpy())[0]).to(mean)
        labels, factor = infer_by_argmin(-counts[None], samples)[0], counts.sum() / samples
        doubt = factor.square() * torch.diag(variance[:, labels].sum(0))
        return Classes(labels, factor, OutputGradients(factor * mean[:, labels], doubt, 0.0))


@dataclass(frozen=True)
class Classes:
    """Labels of a batch, Shape (N); the factor of its gradients; derivatives by labels alone."""

    labels: torch.Tensor
    factor: torch.Tensor
    outputs: OutputGradients
