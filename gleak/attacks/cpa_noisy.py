"""The cocktail party attack in noise: images and output gradients in turn."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from gleak.artifacts.private import UNKNOWN
from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.base import LABELS, MID_GREY, AttackSummary
from gleak.attacks.cpa_edges import POWER, unmix_edges
from gleak.attacks.noisy_first_layer import FirstLayer, NoisyVictim, range_tells_scale
from gleak.attacks.observation import Observation
from gleak.attacks.unmixing import noisy_mixtures
from gleak.attacks.unmixing.mixtures import Mixture, Unmixing
from gleak.attacks.unmixing.noisy_mixtures import (
    OutputGradients,
)
from gleak.attacks.unmixing_attack import InputUnmixing
from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.runtime.checkpointing import Part
from gleak.runtime.progress import Progress
from gleak.runtime.seeding import torch_stream


@register("cpa_noisy")
class CPANoisy(InputUnmixing):
    """CPA on edges for gradients in noise, such as those of `dp` and `gaussian`.

    A batch of N images explains N singular values of the first layer's gradient; the others give
    the variance of the noise, so the attacker need not know the defence. It is used twice.

    - Noise hides the high frequencies of the images, which differences amplify. The mixtures are
      therefore smoothed as far as the noise requires (see
      `gleak.attacks.unmixing.noisy_mixtures.smooth`) before edges are separated, as by `cpa_edges`.
      A second start are the means of the classes, as of `singular_vectors`, which need no edges.
    - Images that are known approximately tell nearly what the network sends for them: at each
      neuron whether it is active, and with which weight for which label. This prior, the observed
      gradients and the images give the derivatives at the layer's outputs; these, the observed
      gradients and a prior of natural images give better images
      (`gleak.data.natural_images.ImagePrior`). Both steps are repeated in turn, and
      each takes into account how uncertain the other's result is. Each image gets the label that
      suits its derivatives, and the batch those that suit the classifier's gradient too, unless
      noise hides it. Of the two starts the result with the larger evidence is returned.

    Noise is taken to be independent and of the same variance in all values of a parameter. If it
    differs between weight and bias, as under Fed-CDP, so do their scales, which are estimated for
    each sample. The result has the labels that fit the images; samples that were not found have
    none.
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

    def keeps_samples(self, observation: Observation) -> bool:
        return range_tells_scale(observation)

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
class Turn:
    """Samples of one victim after a turn, Shape (N, F); labels; minus twice the log evidence."""

    samples: torch.Tensor
    labels: torch.Tensor
    misfit: float


def unmix_victim(observation: Observation, count: int, power: float, turns: int) -> Turn:
    """Unmix N samples of one victim by `unmix_edges` of the smoothed gradient, then improve them.

    Raises:
        IncompatibleError: the network does not begin with a dense layer that has a bias.
    """
    if not count:
        layer = FirstLayer.of(observation)
        return Turn(layer.weight[:0], torch.zeros(0, dtype=torch.long), 0.0)
    victim = NoisyVictim.of(observation, count)
    stream = torch_stream(observation.seed, "cpa_noisy", int(observation.victim_ids[0]))
    classes = victim.of_classes(stream)
    starts = [separated(victim, power), *([classes.outputs] if count > 1 else [])]
    found = [improved(victim, start, classes.factor, turns, stream) for start in starts]
    return min(found, key=lambda turn: turn.misfit)


def improved(
    victim: NoisyVictim,
    start: OutputGradients,
    guess: torch.Tensor,
    turns: int,
    stream: torch.Generator,
) -> Turn:
    """Improve derivatives and images in turn, with a guess of the gradients' factor."""
    layer, images = victim.layer, victim.images(start)
    for turn in range(turns + 1):
        samples = layer.scaling.samples_of(images.images).clamp(0, 1)
        images = replace(images, images=layer.scaling.of_samples(samples))
        derivatives = noisy_mixtures.regress(victim.mixture, images)
        labels = layer.labels(images.images, derivatives, victim.mixture)
        expected = victim.expected(images, labels, guess, stream)
        outputs = noisy_mixtures.estimate_outputs(victim.mixture, images, expected)
        if turn < turns:
            images = victim.images(outputs)
            victim = replace(victim, mixture=victim.mixture.with_gains(outputs))
    return Turn(samples, labels, outputs.misfit + images.divergence)


def separated(victim: NoisyVictim, power: float) -> OutputGradients:
    """Separate the images of the smoothed components by their edges; return their derivatives."""
    mixture, layer, count = victim.mixture, victim.layer, victim.mixture.samples
    components = noisy_mixtures.smooth(mixture, victim.prior)
    rows = torch.ones(1, 1).to(components)
    if count > 1:
        bias, shape = mixture.directions.T @ mixture.bias, layer.observation.input_shape
        of_samples = layer.scaling.gradient_of_samples(components, bias)
        rows = unmix_edges(Mixture(of_samples[None], bias[None]), count, shape, power).rows[0]
    return victim.scaled(rows, components)
