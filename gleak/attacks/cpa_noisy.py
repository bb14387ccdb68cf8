"""The cocktail party attack in noise: images and output gradients in turn."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from gleak.artifacts.private import UNKNOWN
from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.base import LABELS, MID_GREY, AttackSummary
from gleak.attacks.cpa_edges import POWER, unmix_edges
from gleak.attacks.first_layer import classifier_scores, output_slopes, scaled_layer
from gleak.attacks.matching.label_inference import infer_by_argmin
from gleak.attacks.matching.problem import mean_gradients
from gleak.attacks.observation import Observation
from gleak.attacks.unmixing import noisy_mixtures
from gleak.attacks.unmixing.mixtures import Mixture, Unmixing, by_bias, separate
from gleak.attacks.unmixing.noisy_mixtures import Expected
from gleak.attacks.unmixing_attack import InputUnmixing
from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.data.natural_images import Denoised, ImagePrior
from gleak.models.layer_search import Scaling
from gleak.runtime.checkpointing import Part
from gleak.runtime.progress import Progress
from gleak.runtime.seeding import torch_stream

PARTS = ("weight", "bias")
FIRST_ERROR = 0.05
"""Standard deviation assumed for the error of separated intensities."""
DRAWS = 64
"""Number of draws of each image's error."""
UNEXPLAINED = 1e-3
"""Variance of output gradients that their model leaves unexplained, relative to their power."""
TINY = 1e-30


@register("cpa_noisy")
class CPANoisy(InputUnmixing):
    """CPA on edges for gradients in noise, such as those of `dp` and `gaussian`.

    A batch of N images explains N singular values of the first layer's gradient; the others give
    the variance of the noise, so the attacker need not know the defence. It is used twice.

    - Noise hides the high frequencies of the images, which differences amplify. The mixtures are
      therefore smoothed as far as the noise requires (see
      `gleak.attacks.unmixing.noisy_mixtures.smooth`) before edges are separated, as by `cpa_edges`.
    - Images that are known approximately tell nearly what the network sends for them: at each
      neuron whether it is active, and with which weight for which label. This prior, the observed
      gradients and the images give the derivatives at the layer's outputs; these, the observed
      gradients and a prior of natural images give better images
      (`gleak.data.natural_images.ImagePrior`). Both steps are repeated in turn, and
      each takes into account how uncertain the other's result is. The labels of the batch follow
      from the classifier's gradient less the probabilities predicted for the images, and each image
      gets the one that suits its derivatives.

    Noise is taken to be independent and of the same variance in all values of the layer. The result
    has the labels that fit the images; samples that were not found have none.
    """

    source = "ours, after CPA section III; signal and noise by Baik and Silverstein 2006"
    modalities: ClassVar[frozenset[str]] = frozenset({"image"})
    budget_fields: ClassVar[frozenset[str]] = frozenset({"turns"})
    takes_local_steps: ClassVar[bool] = False
    takes_batch_statistics: ClassVar[bool] = False

    power: float = POWER
    turns: int = parameter(8, "improvements of the separated images", source="ours", ge=0)

    def check_neurons(self, samples: int, neurons: int, where: str) -> None:
        """Raise `IncompatibleError` if there are no more neurons than samples."""
        if samples >= neurons:
            raise IncompatibleError(
                f"attack {self} measures the noise in a first dense layer with more neurons than "
                f"samples: {samples} and {neurons} ({where}); use a smaller batch_size, a wider "
                "layer, or cpa_edges"
            )

    def summary(self) -> AttackSummary:
        return AttackSummary(
            losses=("likelihood of edges", "likelihood of gradients"),
            terms=("prior of natural images",),
            optimizers=("fixed point", "quasi-Newton", "least squares in turn"),
            labels=LABELS["counts"],
        )

    def unmix(self, mixture: Mixture, count: int, shape: tuple[int, ...], part: Part) -> Unmixing:
        return unmix_edges(mixture, count, shape, self.power)

    def rehearse(self, observation: Observation) -> None:
        """Take one turn, for one victim of all."""
        unmix_victim(observation.of_victim(0), observation.batch_size, self.power, turns=1)

    def reconstruct(self, observation: Observation) -> Reconstruction:
        counts, most = self.count(observation, self.mixture(observation))
        shape = (observation.victims, most, *observation.input_shape)
        inputs = torch.full(shape, MID_GREY, dtype=torch.float32)
        labels = torch.full(inputs.shape[:2], UNKNOWN)
        misfits = []
        part = observation.journal.part()
        with Progress(len(counts), "victims") as progress:
            for victim, count in enumerate(counts):
                progress.advance()
                own = part.part(str(victim))
                if not own.stored:
                    seen = observation.of_victim(victim)
                    own.keep(vars(unmix_victim(seen, count, self.power, self.turns)))
                    part.save_if_due()
                samples = torch.from_numpy(own.stored["samples"])
                inputs[victim, : len(samples)] = samples.unflatten(1, observation.input_shape)
                labels[victim, : len(samples)] = torch.from_numpy(own.stored["labels"])
                misfits.append(float(own.stored["misfit"]))
        return Reconstruction(
            inputs=inputs.numpy(),
            labels=labels.numpy(),
            converged=torch.tensor(counts).ge(observation.batch_size).numpy(),
            objective=torch.tensor(misfits).numpy(),
            paired=True,
        )


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

    def labels(self, inputs: torch.Tensor, gradients: torch.Tensor) -> torch.Tensor:
        """Assign the labels of the batch to the samples by the direction of their derivatives.

        Gradients are those observed at the outputs, up to a common factor; Shape (neurons, N).
        """
        from scipy.optimize import linear_sum_assignment

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

        Inputs of the layer give the predicted probabilities; the factor is that of the samples'
        gradients in the observed one.
        """
        seen = self.observation
        scores = classifier_scores(seen)
        if seen.protocol.loss == "cross_entropy":
            samples = self.scaling.samples_of(inputs).unflatten(1, seen.input_shape)
            logits = seen.model(samples.to(scores))
            scores = scores - factor * logits.softmax(1).sum(0)
        return infer_by_argmin(scores, len(inputs))[0]

    def expected(
        self,
        images: Denoised,
        labels: torch.Tensor,
        gradients: torch.Tensor,
        stream: torch.Generator,
    ) -> Expected:
        """Compute mean and variance of the derivatives at the outputs, given uncertain inputs.

        A neuron whose output is close to zero may be active or not. Clients may have scaled their
        gradient: the common factor is that of the observed derivatives, as for `labels`.
        """
        errors = (images.covariance.diagonal().clamp(min=0) / images.images.shape[1]).sqrt()
        spread = errors[:, None] * self.weight.norm(dim=1)
        noise = torch.randn(DRAWS, *spread.shape, generator=stream).to(spread)
        outputs = self.outputs(images.images) + spread * noise
        slopes = self.slopes(images.images, outputs, labels.expand(DRAWS, -1))
        mean, variance = slopes.mean(0).T, slopes.var(0).T
        factor, unexplained = _factor(mean, gradients), UNEXPLAINED * mean.square().mean()
        return Expected(factor * mean, factor.square() * (variance + unexplained) + TINY)


def _factor(gradients: torch.Tensor, observed: torch.Tensor) -> torch.Tensor:
    """Compute the factor between observed gradients and those of the samples' losses."""
    return (observed * gradients).sum() / gradients.square().sum().clamp(min=TINY)


@dataclass(frozen=True)
class Turn:
    """Samples of one victim after a turn, Shape (N, F); labels; see `OutputGradients.misfit`."""

    samples: torch.Tensor
    labels: torch.Tensor
    misfit: float


def unmix_victim(observation: Observation, count: int, power: float, turns: int) -> Turn:
    """Unmix N samples of one victim by `unmix_edges` of the smoothed gradient, then improve them.

    Raises:
        IncompatibleError: the network does not begin with a dense layer that has a bias.
    """
    name, scaling = scaled_layer(observation.model, observation.input_shape)
    parameters = (observation.model.get_parameter(f"{name}.{part}").double() for part in PARTS)
    layer = FirstLayer(observation, name, scaling, *parameters)
    if not count:
        return Turn(layer.weight[:0], torch.zeros(0, dtype=torch.long), 0.0)
    gradients = mean_gradients(observation)
    weight, bias = (gradients[f"{name}.{part}"][0] for part in PARTS)
    mixture = noisy_mixtures.observe_noise(weight, bias, count)
    prior = ImagePrior.natural(observation.input_shape, layer.weight)
    prior = prior.scaled(scaling.gain.double(), scaling.offset.double())
    stream = torch_stream(observation.seed, "cpa_noisy", int(observation.victim_ids[0]))
    smoothed, shape = noisy_mixtures.smooth(mixture, prior), observation.input_shape
    bias = mixture.gradients[:, -1]
    of_samples = Mixture(scaling.gradient_of_samples(smoothed, bias)[None], bias[None])
    sources = separate(
        of_samples, [count], count, lambda kept, number: unmix_edges(kept, number, shape, power)
    )
    samples = by_bias(sources.values, sources.factors)[0][0]
    errors = FIRST_ERROR**2 * scaling.gain.double().square().sum()
    images = Denoised(scaling.of_samples(samples), errors * torch.eye(count).to(samples))
    for turn in range(turns + 1):
        samples = scaling.samples_of(images.images).clamp(0, 1)
        images = replace(images, images=scaling.of_samples(samples))
        derivatives = noisy_mixtures.regress(mixture, images)
        labels = layer.labels(images.images, derivatives)
        expected = layer.expected(images, labels, derivatives, stream)
        outputs = noisy_mixtures.estimate_outputs(mixture, images, expected)
        if turn < turns:
            images = noisy_mixtures.estimate_images(mixture, outputs, prior)
    return Turn(samples, labels, outputs.misfit)
