"""Base of the attacks that take a dense layer's gradients for mixtures of the layer's inputs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from typing_extensions import override

from gleak.attacks.base import AttackSpec
from gleak.core.errors import IncompatibleError
from gleak.core.spec import parameter
from gleak.observation import Observation

if TYPE_CHECKING:
    from torch import nn

    from gleak.clients.base import ClientSpec
    from gleak.data.base import DatasetSpec
    from gleak.models.base import ModelSpec
    from gleak.runtime.checkpointing import Part
    from gleak.unmixing.mixtures import Mixture, Sources, Unmixing

Counted = Literal["batch_size", "spectrum"]


class UnmixingAttack(AttackSpec):
    """An attack on the first dense layer of a network, whatever is unmixed and how.

    Of local training the mean gradient of the steps is read, which is such a mixture as well. The
    samples of a victim are told apart as far as its gradients stand out from rounding; those
    beyond that are not invented. An attacker who counts by the spectrum may find more sources than
    samples, where a defence drops values or several gradients were joined; scores take the best of
    them.
    """

    counted: Counted = parameter(
        "batch_size",
        "how many samples are sought; spectrum: as many as stand out from noise",
        source="CPA section III; spectrum: Gavish and Donoho 2014",
    )

    def check(self, dataset: DatasetSpec, model: ModelSpec, client: ClientSpec) -> None:
        """Refuse layers with fewer neurons than samples, where that is known.

        Raises:
            IncompatibleError: see `AttackSpec.check`.
        """
        super().check(dataset, model, client)
        neurons = model.first_dense_neurons(dataset.classes)
        if neurons is not None:
            self._check_neurons(client.batch_size, neurons, f"model {model}")

    @override
    def check_network(
        self, network: nn.Module, shape: tuple[int, ...], classes: int, client: ClientSpec
    ) -> None:
        """A dense layer with a neuron for each sample."""
        super().check_network(network, shape, classes, client)
        layer = _layer_to_unmix(network, shape)
        neurons = len(network.get_parameter(f"{layer}.bias"))
        self._check_neurons(client.batch_size, neurons, f"layer {layer!r}")

    def _check_neurons(self, samples: int, neurons: int, where: str) -> None:
        """Refuse layers with fewer neurons than samples (CPA section VI).

        Raises:
            IncompatibleError: names both numbers.
        """
        if samples > neurons:
            raise IncompatibleError(
                f"attack {self} tells no more samples apart than the first dense layer has "
                f"neurons: {samples} and {neurons} ({where}); use a smaller batch_size or a wider "
                "layer"
            )

    def reads(self, model: nn.Module, input_shape: tuple[int, ...]) -> frozenset[str] | None:
        """The first dense layer, and what labels are read off; see `AttackSpec.reads`.

        Raises:
            IncompatibleError: the model has no such layers.
        """
        from gleak.attacks.first_layer import label_parameters

        layer = _layer_to_unmix(model, input_shape)
        return label_parameters(model, input_shape) | {f"{layer}.weight", f"{layer}.bias"}

    def separate(self, observation: Observation) -> Sources:
        """The layer's inputs for every victim, up to a factor.

        Raises:
            IncompatibleError: no dense layer with a bias, or one with fewer neurons than samples.
        """
        from gleak.unmixing.mixtures import estimated_sources, visible_sources

        mixture, samples = self.mixture(observation), observation.batch_size
        counts = visible_sources(mixture, samples)
        if self.counted == "spectrum":
            counts = estimated_sources(mixture)
            samples = max(1, *counts)
        return self.separate_counted(observation, mixture, counts, samples)

    def separate_counted(
        self, observation: Observation, mixture: Mixture, counts: Sequence[int], most: int
    ) -> Sources:
        """The sources of mixtures, as many as are told.

        Args:
            observation: of the victims.
            mixture: of the layer's inputs.
            counts: of each victim's sources.
            most: places for sources, of no victim fewer than it has.
        """
        from gleak.unmixing.mixtures import separate

        return separate(
            mixture,
            counts,
            most,
            lambda some, count: self.unmix(
                some, count, observation.input_shape, observation.journal.part()
            ),
        )

    def mixture(self, observation: Observation) -> Mixture:
        """The gradients of the layer that is unmixed.

        Raises:
            IncompatibleError: no dense layer with a bias, or one with fewer neurons than samples.
        """
        from gleak.matching.problem import mean_gradients
        from gleak.unmixing.mixtures import Mixture

        layer = _layer_to_unmix(observation.model, observation.input_shape)
        observed, samples = mean_gradients(observation), observation.batch_size
        mixture = Mixture(observed[f"{layer}.weight"], observed[f"{layer}.bias"])
        self._check_neurons(samples, mixture.bias.shape[1], f"layer {layer!r}")
        return mixture

    @abstractmethod
    def unmix(self, mixture: Mixture, count: int, shape: tuple[int, ...], part: Part) -> Unmixing:
        """Unmix victims that have equally many sources.

        Args:
            mixture: of these victims.
            count: of their sources.
            shape: of a sample.
            part: of the job's journal.
        """


def _layer_to_unmix(model: nn.Module, shape: tuple[int, ...]) -> str:
    from gleak.models.layer_search import first_dense_layer

    layer = first_dense_layer(model, shape)
    if layer is None:
        raise IncompatibleError(
            "the gradients of a dense layer with a bias, which is given one vector of each "
            "sample, are what is unmixed, and this model has no such layer; use gm or invertgrad"
        )
    return layer.name
