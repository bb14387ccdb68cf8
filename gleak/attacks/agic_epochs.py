"""AGIC on all the updates of several epochs."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from typing_extensions import override

from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.agic import AGIC
from gleak.core.errors import IncompatibleError
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.observation import Observation

if TYPE_CHECKING:
    from gleak.clients.base import ClientSpec
    from gleak.data.base import DatasetSpec
    from gleak.models.base import ModelSpec


@register("agic_epochs")
class AGICEpochs(AGIC):
    """Updates with a sample in common are found, and each sample sought in all of its own (Eq. 5).

    Every update is inverted alone, for ``matching_iterations``; images of one epoch are paired with
    those of the next, the most alike first; then each sample is sought anew in the updates it was
    found in, so that an update of B samples serves B searches. If an epoch is one update, nothing
    needs to be paired. Total variation counts with the weight of each update.
    """

    source = "Xu et al. 2022, section IV-B"
    budget_fields: ClassVar[frozenset[str]] = frozenset({"iterations", "matching_iterations"})
    modalities: ClassVar[frozenset[str]] = frozenset({"image"})

    matching_iterations: int = parameter(
        2000, "budget of an update before updates are paired", source="AGIC section V-D", ge=1
    )
    gamma: float = parameter(
        0.1, "weight of the updates behind the first epoch", source="AGIC section V-A", ge=0
    )
    pooled: bool = parameter(True, "pair by means of 2 x 2 pixels", source="AGIC section IV-B")
    label_filter: bool = parameter(
        True, "pair updates first that share an inferred label", source="AGIC section IV-B"
    )
    only: int | None = parameter(
        None,
        "one epoch, whose updates are inverted alone; none: all jointly",
        source="AGIC VI",
        ge=1,
    )

    def check(self, dataset: DatasetSpec, model: ModelSpec, client: ClientSpec) -> None:
        """Refuse clients that are observed once, and labels that are not fixed.

        Raises:
            IncompatibleError: see `AttackSpec.check`.
        """
        super().check(dataset, model, client)
        epochs = client.protocol.get("epochs", 1)
        if epochs < (self.only or 2):
            raise IncompatibleError(
                f"attack {self} needs updates of {self.only or 2} epochs, and client {client} "
                f"sends those of {epochs}; use client epochs"
            )
        if self.labels == "joint":
            raise IncompatibleError(
                f"attack {self} pairs updates by fixed labels, not labels=joint; use labels=rows"
            )

    @property
    @override
    def joins_epochs(self) -> bool:
        return self.only is None

    @override
    def search(self, observation: Observation) -> Reconstruction:
        from gleak.matching.epoch_matching import EpochMatching, EpochSettings

        settings = EpochSettings(
            self.parts(), self.matching_iterations, self.gamma, self.pooled, self.label_filter
        )
        search = EpochMatching(observation, settings)
        return search.alone(self.only - 1) if self.only else search.jointly()
