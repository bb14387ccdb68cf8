"""Base classes of the attacks that treat a dense layer's gradients as mixtures of its inputs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Literal

from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.base import MID_GREY, AttackSpec
from gleak.attacks.first_layer import (
    DenseFirstAttack,
    classifier_scores,
    label_parameters,
)
from gleak.attacks.matching.label_inference import infer_by_argmin
from gleak.attacks.matching.problem import mean_gradients
from gleak.attacks.observation import Observation
from gleak.attacks.unmixing import mixtures
from gleak.attacks.unmixing.mixtures import Mixture, Sources, Unmixing
from gleak.clients.base import ClientSpec
from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch
from gleak.core.spec import parameter
from gleak.data.base import DatasetSpec
from gleak.models.base import ModelSpec
from gleak.models.layer_search import DenseLayer, first_dense_layer, layer_of_samples
from gleak.runtime.checkpointing import Part

Scale = Literal["bias", "range"]
SCALE = parameter(
    "bias",
    "of the samples: from the bias, shrunk to fit [0, 1]; range: each fills [0, 1]",
    source="ours; range: CPA reference",
)


class UnmixingAttack(AttackSpec):
    """Base class of attacks that unmix the gradients of the first dense layer.

    A subclass says by `unmix` how they are separated, and by `reconstruct` what becomes of the
    sources: samples (`InputUnmixing`), or embeddings that are inverted to images
    (`gleak.attacks.inversion_attack.EmbeddingUnmixing`).

    For local training the mean gradient of the steps is used, which is such a mixture as well.
    Only as many sources are separated as exceed the rounding errors of the gradients; no others are
    made up. With counts from the spectrum an attacker may find more sources than samples, if a
    defence drops values or several gradients are joined; scores use the best of them.
    """

    counted: Literal["batch_size", "spectrum"] = parameter(
        "batch_size",
        "number of samples to search; spectrum: as many as exceed the noise",
        source="CPA section III; spectrum: Gavish and Donoho 2014",
    )

    @abstractmethod
    def unmix(self, mixture: Mixture, count: int, shape: tuple[int, ...], part: Part) -> Unmixing:
        """Unmix the gradients of victims that have the same number of sources.

        Args:
            mixture: mixtures of these victims.
            count: number of sources.
            shape: shape of a sample.
            part: part of the job's journal.
        """

    def check(self, dataset: DatasetSpec, model: ModelSpec, client: ClientSpec) -> None:
        super().check(dataset, model, client)
        if not model.has_dense_bias:
            raise IncompatibleError(
                f"attack {self} needs a dense layer with a bias, and those of model {model} have "
                "none; use gm or invertgrad"
            )
        neurons = model.first_dense_neurons(dataset.classes)
        if neurons is not None:
            self.check_neurons(client.batch_size, neurons, f"model {model}")

    def check_network(
        self, network: torch.nn.Module, shape: tuple[int, ...], classes: int, client: ClientSpec
    ) -> None:
        super().check_network(network, shape, classes, client)
        layer = layer_to_unmix(network, shape).name
        neurons = len(network.get_parameter(f"{layer}.bias"))
        self.check_neurons(client.batch_size, neurons, f"layer {layer!r}")

    def check_observation(self, observation: Observation) -> None:
        super().check_observation(observation)
        layer = layer_to_unmix(observation.model, observation.input_shape).name
        neurons = len(observation.model.get_parameter(f"{layer}.bias"))
        self.check_neurons(observation.batch_size, neurons, f"layer {layer!r}")

    def check_neurons(self, samples: int, neurons: int, where: str) -> None:
        """Raise `IncompatibleError` if there are fewer neurons than samples (CPA section VI)."""
        if samples > neurons:
            raise IncompatibleError(
                f"attack {self} separates at most as many samples as the first dense layer has "
                f"neurons: {samples} and {neurons} ({where}); use a smaller batch_size or a wider "
                "layer"
            )

    def reads(self, model: torch.nn.Module, input_shape: tuple[int, ...]) -> frozenset[str] | None:
        """Return the names of the first dense layer's parameters and of those that give labels."""
        layer = layer_to_unmix(model, input_shape).name
        return label_parameters(model, input_shape) | {f"{layer}.weight", f"{layer}.bias"}

    def rehearse(self, observation: Observation) -> None:
        """Unmix as many sources as there are samples; their number depends on values."""
        samples = observation.batch_size
        counts = [samples] * observation.victims
        self.separate_counted(observation, self.mixture(observation), counts, samples)

    def separate(self, observation: Observation) -> Sources:
        """Recover the layer's inputs of every victim, up to a factor.

        Raises:
            IncompatibleError: no dense layer with a bias, or one with fewer neurons than samples.
        """
        mixture = self.mixture(observation)
        return self.separate_counted(observation, mixture, *self.count(observation, mixture))

    def count(self, observation: Observation, mixture: Mixture) -> tuple[list[int], int]:
        """Return the number of sources of each victim, and the number of samples to return."""
        if self.counted == "spectrum":
            counts = mixtures.estimated_sources(mixture)
            return counts, max(1, *counts)
        samples = observation.batch_size
        return mixtures.visible_sources(mixture, samples), samples

    def separate_counted(
        self, observation: Observation, mixture: Mixture, counts: Sequence[int], most: int
    ) -> Sources:
        """Recover a given number of sources of each victim, at most ``most``."""
        shape, journal = observation.input_shape, observation.journal
        return mixtures.separate(
            mixture,
            counts,
            most,
            lambda selected, count: self.unmix(selected, count, shape, journal.part()),
        )

    def mixture(self, observation: Observation) -> Mixture:
        """Return the gradients of the layer to unmix, of its inputs or of samples scaled to them.

        Raises:
            IncompatibleError: no dense layer with a bias, or one with too few neurons.
        """
        layer = layer_to_unmix(observation.model, observation.input_shape)
        observed = mean_gradients(observation)
        weight, bias = observed[f"{layer.name}.weight"], observed[f"{layer.name}.bias"]
        self.check_neurons(observation.batch_size, bias.shape[1], f"layer {layer.name!r}")
        if layer.scaling is not None:
            weight = layer.scaling.gradient_of_samples(weight, bias)
        return Mixture(weight, bias)


def layer_to_unmix(model: torch.nn.Module, shape: tuple[int, ...]) -> DenseLayer:
    """Return the first dense layer with a bias.

    Raises:
        IncompatibleError: there is none whose input is one vector for each sample.
    """
    layer = first_dense_layer(model, shape)
    if layer is None:
        raise IncompatibleError(
            "unmixing needs a dense layer with a bias whose input is one vector for each sample, "
            "and this model has no such layer; use gm or invertgrad"
        )
    return layer


class InputUnmixing(DenseFirstAttack, UnmixingAttack):
    """Base class of attacks that unmix the samples themselves; labels by CPL's rule, in its order.

    Unmixing does not determine the sign and scale of a sample. Both are estimated from the bias
    gradient, never from the truth; ``mirrored`` contains the samples with the opposite sign, for
    metrics with an oracle choice of the sign. Samples that could not be separated are mid-grey, and
    their victim has not converged.
    """

    instead: ClassVar[str] = "use cpa_fi, or a model such as fc2"

    def reconstruct_samples(self, observation: Observation, scale: Scale) -> Reconstruction:
        """Return the samples that are separated, with labels by CPL's rule."""
        layer_of_samples(observation.model, observation.input_shape)
        sources = self.separate(observation)
        rescale = mixtures.by_bias if scale == "bias" else mixtures.by_range
        recovered = sources.values.isfinite().all(2)
        inputs, mirrored = (
            samples.where(recovered[..., None], MID_GREY).unflatten(2, observation.input_shape)
            for samples in rescale(sources.values, sources.factors)
        )
        labels = infer_by_argmin(classifier_scores(observation), recovered.shape[1])
        return Reconstruction(
            inputs=inputs.float().cpu().numpy(),
            mirrored=mirrored.float().cpu().numpy(),
            labels=labels.cpu().numpy(),
            converged=(recovered.sum(1) >= observation.batch_size).cpu().numpy(),
            iterations=sources.iterations.cpu().numpy(),
            objective=sources.objective.cpu().numpy(),
        )
