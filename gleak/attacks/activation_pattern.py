"""Samples from the signs of a dense first layer's gradient, and which of its ReLUs are active."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.base import LABELS, AttackSummary
from gleak.attacks.first_layer import (
    DenseFirstAttack,
    classifier_scores,
    dense_classifier,
    exact_reconstruction,
)
from gleak.attacks.matching.label_inference import infer_by_argmin
from gleak.attacks.matching.problem import mean_gradients
from gleak.attacks.matching.quantisation_cells import SignCell
from gleak.attacks.noisy_first_layer import FirstLayer
from gleak.attacks.observation import Observation
from gleak.attacks.signed_first_layer import SignedBatch, check_two_layers, minimised
from gleak.clients.base import ClientSpec
from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.data.base import DatasetSpec
from gleak.data.natural_images import ImagePrior
from gleak.models.base import ModelSpec
from gleak.runtime.seeding import torch_stream

UNCERTAIN = 1.0
"""Deviation within which outputs are compared with zero, relative to that of natural images.

Of 0.05 to 1.4 the best on eight training images of CIFAR-10: 15.8 dB, 14.5 dB at 0.6.
"""


@register("activation_pattern")
class ActivationPattern(DenseFirstAttack):
    """The most probable images with the active neurons that a sign update of a dense layer shows.

    All pixels of an image are positive, so the signs of the gradient of a first dense layer (see
    `signsgd`) tell nothing about them but this: a neuron whose signs are not zero was active, and
    its output was positive. These are as many comparisons of known projections of the image as the
    layer has neurons; a prior of natural images adds the rest. The result is the maximum of

        sum_k log Phi(s_k (w_k x + b_k) / t) - |z(x)|^2 / 2,

    with the activity s_k in {-1, 1} of neuron k, the normal distribution function Phi, the standard
    deviation t of w_k x + b_k in natural images, and the whitened coefficients z of the image: a
    convex problem.

    In a batch neurons add samples with factors of different signs, and signs tell ratios of the
    samples' values. If the network has two dense layers with a ReLU between them, labels and
    activities are read from the signs of the classifier's gradient, and then, by turns,

    - the samples are those of greatest posterior probability, given the activities: of the signs of
      both layers, of activities as above, and of natural images of usual brightness;
    - the activities are the most probable ones, given the samples.

    See `gleak.attacks.signed_first_layer`. Samples of one label have nearly the same factors: what
    is told of them is little more than their sum, and of two samples of one label no more than by
    the activities.
    """

    source = "ours; one-bit compressed sensing by Boufounos and Baraniuk 2008"
    modalities: ClassVar[frozenset[str]] = frozenset({"image"})
    takes_local_steps: ClassVar[bool] = False

    def check(self, dataset: DatasetSpec, model: ModelSpec, client: ClientSpec) -> None:
        super().check(dataset, model, client)
        if client.batch_size > 1 and client.loss != "cross_entropy":
            raise IncompatibleError(
                f"attack {self} needs the loss cross_entropy of a batch, and loss is "
                f"{client.loss}; use batch_size=1 or map"
            )

    def check_network(
        self, network: torch.nn.Module, shape: tuple[int, ...], classes: int, client: ClientSpec
    ) -> None:
        super().check_network(network, shape, classes, client)
        if client.batch_size > 1:
            try:
                check_two_layers(network, shape, classes)
            except IncompatibleError as error:
                raise IncompatibleError(f"attack {self} {error}; use map") from None

    def reads(self, model: torch.nn.Module, input_shape: tuple[int, ...]) -> frozenset[str] | None:
        """Return the names of weights and biases of the layer and of a dense classifier."""
        names = super().reads(model, input_shape) or frozenset()
        classifier = dense_classifier(model, input_shape)
        return names if classifier.weight is None else names | {classifier.weight}

    def check_observation(self, observation: Observation) -> None:
        super().check_observation(observation)
        layer = FirstLayer.of(observation)
        if not isinstance(observation.cells.get(f"{layer.name}.weight"), SignCell):
            raise IncompatibleError("other updates than signs tell more than which ReLU is active")
        inputs = torch.zeros_like(layer.weight[:1])
        if layer.slopes(inputs, -torch.ones_like(layer.bias[None]), torch.tensor([0])).any():
            raise IncompatibleError("needs a ReLU after the first dense layer")
        if observation.batch_size > 1:
            if observation.protocol.loss != "cross_entropy":
                raise IncompatibleError("needs the loss cross_entropy of a batch")
            names = check_two_layers(
                observation.model, observation.input_shape, observation.classes
            )
            if not all(isinstance(observation.cells.get(name), SignCell) for name in names):
                raise IncompatibleError("needs the signs of the classifier's gradient of a batch")

    def keeps_samples(self, observation: Observation) -> bool:
        return observation.batch_size > 1

    def summary(self) -> AttackSummary:
        return AttackSummary(
            losses=("likelihood of active neurons",),
            terms=("prior of natural images",),
            optimizers=("quasi-Newton",),
            labels=LABELS["argmin"],
        )

    def reconstruct(self, observation: Observation) -> Reconstruction:
        if observation.batch_size > 1:
            victims = [read_batch(observation.of_victim(row)) for row in range(observation.victims)]
            samples, labels = map(torch.stack, zip(*victims, strict=True))
            return replace(exact_reconstruction(observation, samples, labels), paired=True)
        layer = FirstLayer.of(observation)
        gradients = mean_gradients(observation)
        active = (gradients[f"{layer.name}.weight"] != 0).any(2)
        gain, offset = layer.scaling.gain.double(), layer.scaling.offset.double()
        prior = ImagePrior.natural(observation.input_shape, layer.weight).scaled(gain, offset)
        found = [most_probable(layer, prior, victim) for victim in active]
        samples = torch.stack([layer.scaling.samples_of(image) for image in found])
        labels = infer_by_argmin(classifier_scores(observation), observation.batch_size)
        return replace(exact_reconstruction(observation, samples, labels), paired=True)


def read_batch(observation: Observation) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute samples of one victim, Shape (N, F), not finite without a gradient; and labels."""
    batch = SignedBatch.of(observation)
    if not batch.used.any():
        nothing = torch.full_like(batch.prior.mean, torch.nan)
        samples = nothing.expand(observation.batch_size, -1)
        return samples, torch.zeros(len(samples), dtype=torch.long, device=samples.device)
    stream = torch_stream(observation.seed, "activation_pattern")
    labels = batch.labels(stream)
    return batch.reconstruct(labels, stream), labels


def most_probable(layer: FirstLayer, prior: ImagePrior, active: torch.Tensor) -> torch.Tensor:
    """Compute the most probable input of a layer by its active neurons, a mask; Shape (1, F)."""
    signs = torch.where(active, 1.0, -1.0).to(layer.weight)
    directions = prior.coefficients(layer.weight) * prior.variances.sqrt()
    middle = layer.outputs(prior.mean)
    uncertain = UNCERTAIN * directions.norm(dim=1)

    def improbability(codes: torch.Tensor) -> torch.Tensor:
        margins = signs * (directions @ codes + middle) / uncertain
        return codes.square().sum() / 2 - torch.special.log_ndtr(margins).sum()

    codes, _ = minimised(improbability, middle.new_zeros(directions.shape[1]))
    return prior.coloured(codes[None])
