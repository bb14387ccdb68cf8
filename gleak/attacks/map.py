"""Maximum a posteriori estimates of a client's samples, with labels by their probability."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Self

from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.base import AttackSummary
from gleak.attacks.matching.codes import Whitened
from gleak.attacks.matching.denoiser_prior import DenoiserPrior
from gleak.attacks.matching.distances import ProfileLikelihood
from gleak.attacks.matching.line_search import LineSearchLBFGS
from gleak.attacks.matching.optimizers import Adam, OptimizerSpec
from gleak.attacks.matching.parts import Parts
from gleak.attacks.matching.posterior import Posterior
from gleak.attacks.matching.priors import NaturalImages
from gleak.attacks.matching.starts import Grey
from gleak.attacks.matching_attack import MatchingAttack
from gleak.attacks.observation import Observation
from gleak.attacks.observed_network import has_hidden_dense_layer, is_kinked
from gleak.core.registry import nested, register
from gleak.core.spec import parameter
from gleak.knowledge.denoiser import Denoiser

DENOISER = 0.7
"""Weight of the denoiser's prior, chosen on training images of CIFAR-10 (docs/results/masks.md)."""

OF_IMAGES = Adam(lr=0.3, schedule="steps")
"""Optimizer of a search from grey images, chosen on training images (docs/results/best.md)."""

CONTINUED = Adam(lr=0.1, schedule="steps")
"""Optimizer of the search that continues one without the first dense layer."""

LONGER = 3
"""Factor of the iterations of these two, which find more and more images, in a larger budget."""


@register("map")
class MAP(MatchingAttack):
    """The samples of greatest posterior probability.

    Minimises minus the logarithm of the likelihood of what was sent, whose scale and noise are
    estimated, and of a density of natural images (`gleak.attacks.matching.posterior`). Under a
    defence that hides a part of the gradient, or adds noise to it, the density fills in what is
    hidden, and no weight has to be chosen. The search is over whitened images, whose values are of
    one size, so that one learning rate suits all.

    Images are searched by Adam, since on networks with kinks L-BFGS ends far from the samples;
    tables by L-BFGS. So are images whose gradient was rounded, or is known in intervals, if the
    network has no kinks: many images explain all that was sent, and Adam ends at noisy ones.

    A hidden dense layer behind convolutions has most of the values, and misleads a search where its
    units are active in place of others. If the network has kinks, two thirds of the iterations
    leave it out, and the others go on from there with all values; `best` gives that up to
    three times the iterations.

    Labels that no rule tells for certain are enumerated: all classes of one sample, or changes of
    the labels inferred for a batch, are compared at grey images of two levels. The samples are
    searched for the most probable ones for a few evaluations, and the best of these go on. That
    takes up to 310 evaluations of ten classes, and 1,090 of a hundred, which `iterations` and
    `cost` do not count.
    """

    source = "ours; maximum a posteriori estimation"

    iterations: int = parameter(400, "gradient evaluations for one victim", source="ours", ge=1)
    denoiser: Annotated[Denoiser, nested("knowledge")] | None = parameter(
        None, "network whose energy is a part of the prior; none: natural images alone"
    )

    def parts(self) -> Parts:
        learned = () if self.denoiser is None else (DenoiserPrior(DENOISER),)
        return Parts(
            start=Grey(noise=0.05),
            labels="enumerated",
            distance=ProfileLikelihood(),
            code=Whitened(),
            optimizer=LineSearchLBFGS(),
            priors=(NaturalImages(1.0), *learned),
            **self.common(),
        )

    def summary(self) -> AttackSummary:
        own = super().summary()
        return replace(own, optimizers=(str(OF_IMAGES), *own.optimizers))

    def fitted(self, observation: Observation, evaluations: int) -> Self:
        most = self.iterations * (LONGER if self.begun_by(observation) else 1)
        return super().fitted(observation, min(evaluations, most))

    def search(self, observation: Observation) -> Reconstruction:
        posterior, first = Posterior.of(observation, self.parts()), self.begun_by(observation)
        labels, spent = posterior.likely_labels()
        if first is None:
            optimizer = optimizer_for(observation)
            found = posterior.search(labels, self.iterations, optimizer=optimizer)
        else:
            features = Posterior.of(observation, first.parts())
            near = features.search(labels, first.iterations, optimizer=OF_IMAGES)
            others = self.iterations - first.iterations
            found = posterior.search(labels, others, near.inputs, optimizer=CONTINUED)
            spent = spent + near.evaluations
        return replace(found, evaluations=found.evaluations + spent, paired=True)

    def begun_by(self, observation: Observation) -> Self | None:
        """Return the search without the first dense layer that comes first; None without one."""
        encoded = observation.sent or observation.cells or observation.bases
        is_whole = observation.modality == "image" and self.skip is None and not encoded
        iterations = 2 * self.iterations // 3
        if not (is_whole and iterations and is_kinked(observation)):
            return None
        if not has_hidden_dense_layer(observation):
            return None
        fields = {"skip": "first_dense", "compared": "sent", "iterations": iterations}
        return self.model_copy(update=fields)


def optimizer_for(observation: Observation) -> OptimizerSpec:
    """Return the optimizer of a search from grey images, or from tables."""
    smooth = observation.cells and not is_kinked(observation)
    return LineSearchLBFGS() if smooth or observation.modality != "image" else OF_IMAGES
