"""Inversion of the gradients of networks with batch normalisation (GradInversion)."""

from __future__ import annotations

from typing import ClassVar

from gleak.attacks.matching.parts import LabelRule, Parts
from gleak.attacks.matching.priors import BatchNormPrior, StatisticsSource, check_statistics
from gleak.attacks.matching_attack import SignedAdamAttack
from gleak.attacks.observation import Observation
from gleak.clients.base import ClientSpec
from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.data.base import DatasetSpec
from gleak.models.base import ModelSpec
from gleak.models.batch_norm import has_trained_statistics


@register("gradinversion")
class GradInversion(SignedAdamAttack):
    """Signed Adam on the cosine distance with a prior by the statistics of batch normalisation.

    The network that the server broadcasts keeps running means and variances of the data it was
    trained on, layer by layer. The prior asks for images with such statistics, which an untrained
    network does not have. With statistics=granted it asks for those of the client's batch, as in
    GradInversion; a client that sends its running statistics with the update reveals them.
    GradInversion matches gradients by their squared distance, and averages the images of several
    starts; here one start is searched as by InvertGrad. What the prior gains is measured in
    docs/results/batch_norm.md.
    """

    source = "Yin et al. 2021 (GradInversion), section 3"
    modalities: ClassVar[frozenset[str]] = frozenset({"image"})
    tuned: ClassVar[frozenset[str]] = frozenset({"tv", "batch_norm"})

    tv: float = parameter(0.01, "weight of the total variation", source="ours", ge=0)
    batch_norm: float = parameter(
        0.03,
        "weight of the prior by statistics of batch normalisation",
        source="ours; of 0.001 to 0.1 best on training images of CIFAR-10",
        gt=0,
    )
    statistics: StatisticsSource = parameter(
        "running",
        "statistics of the prior: those that the network keeps, or the granted ones of the batch",
        source="ours; granted: GradInversion",
    )
    labels: LabelRule = parameter("auto", "label inference rule", source="ours")

    def check_observation(self, observation: Observation) -> None:
        super().check_observation(observation)
        if not has_trained_statistics(observation.model):
            raise IncompatibleError("the network keeps no statistics of its training data")

    @property
    def grants(self) -> frozenset[str]:
        """Grants of the search, and the statistics if the spec says that they are granted."""
        known = {"batch_norm_statistics"} if self.statistics == "granted" else set()
        return super().grants | known

    def check(self, dataset: DatasetSpec, model: ModelSpec, client: ClientSpec) -> None:
        super().check(dataset, model, client)
        if not model.has_batch_norm:
            raise IncompatibleError(
                f"attack {self} needs the {self.statistics} statistics of batch normalisation, "
                f"and model {model} has no such layer; use norm=batch where the model has it, or "
                "invertgrad"
            )
        if self.statistics == "granted" and client.protocol.batch_size < client.batch_size:
            raise IncompatibleError(
                f"attack {self}: statistics are granted of all {client.batch_size} samples of a "
                f"client, but an update of {client} contains fewer; use statistics=running"
            )

    def check_network(
        self, network: torch.nn.Module, shape: tuple[int, ...], classes: int, client: ClientSpec
    ) -> None:
        super().check_network(network, shape, classes, client)
        check_statistics(network, shape, self.statistics)

    def parts(self) -> Parts:
        common = self.common()
        prior = BatchNormPrior(self.batch_norm, self.statistics)
        return Parts(labels=self.labels, **common | {"priors": (*common["priors"], prior)})
