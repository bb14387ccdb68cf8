"""Approximate gradient inversion (AGIC), for single updates and for updates of several epochs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Self

from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.matching.codes import Bicubic, Pixels
from gleak.attacks.matching.distances import Cosine
from gleak.attacks.matching.epoch_matching import EpochMatching
from gleak.attacks.matching.optimizers import Adam
from gleak.attacks.matching.parts import LabelRule, LayerFunction, LayerWeights, Parts
from gleak.attacks.matching.priors import TotalVariation
from gleak.attacks.matching.starts import Normal
from gleak.attacks.matching_attack import TV, Code, MatchingAttack, Start
from gleak.attacks.observation import Observation
from gleak.clients.base import ClientSpec
from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.data.base import DatasetSpec
from gleak.models.base import ModelSpec

DEEP = 6
"""Number of convolutions from which on weights of layers recover more than equal ones."""
VERY_DEEP = 12
"""Number of convolutions from which on the mean of several coarse searches recovers more.

Both, and the fields, were chosen on training images of CIFAR-10 (docs/results/defaults.md).
"""
VERY_DEEP_FIELDS: dict[str, Any] = {"code": Bicubic(scale=2), "lr": 0.2, "result": "mean"}
SEARCHES = 3
"""Number of searches that share the budget there."""


@register("agic")
class AGIC(MatchingAttack):
    """Adam on the layer-weighted cosine distance with total variation (Eq. 2, 6 to 8).

    An update of several local steps is approximated by one step on all of its samples (Eq. 4).
    The cost therefore does not depend on the number of steps, and labels can be inferred. The
    weight of later layers depends on the state of the network: 50 if untrained, 2 if trained.
    """

    source = "Xu et al. 2022"
    tuned: ClassVar[frozenset[str]] = frozenset({"tv"})

    iterations: int = parameter(10000, "budget of one victim", source="AGIC section V-A", ge=1)
    lr: float = parameter(0.1, "learning rate at the start", source="AGIC section V-A", gt=0)
    tv: float = parameter(0.015, TV, source="ours, chosen on training images", ge=0)
    start: Start = parameter(Normal(), "first dummy input", source="InvertGrad")
    labels: LabelRule = parameter("rows", "label inference rule", source="AGIC section V-A")
    descent: Literal["invertgrad", "plain"] = parameter(
        "invertgrad",
        "Adam on the gradient's sign with a falling rate, clipping values to [0, 1] at each step; "
        "or plain Adam",
        source="InvertGrad; plain: AGIC section V-A",
    )
    beta: float = parameter(
        50.0,
        "weight of the last convolution relative to the first; 1: equal weights",
        source="AGIC, untrained networks; 2 for trained ones",
        gt=0,
    )
    weights: LayerFunction = parameter(
        "linear",
        "interpolation of weights from the first convolution to the last",
        source="AGIC Table I",
    )
    relu_modifier: bool = parameter(
        True, "give layers with zeros in their gradients more weight", source="AGIC Eq. 8"
    )
    code: Code = parameter(
        Pixels(),
        "what is searched, in whose unit learning rates are; normalised: as InvertGrad's code does",
        source="ours",
    )

    def proposals(self, observation: Observation, evaluations: int) -> Sequence[Self]:
        layers = observation.model.modules()
        convolutions = sum(isinstance(layer, torch.nn.Conv2d) for layer in layers)
        if convolutions < DEEP or not observation.protocol.shows_gradient:
            raise IncompatibleError(f"suits one step of networks of at least {DEEP} convolutions")
        (attack,) = super().proposals(observation, evaluations)
        fields: dict[str, Any] = {"labels": "auto"}
        sides = observation.input_shape[1:]
        if convolutions >= VERY_DEEP and sides and not any(side % 2 for side in sides):
            shared = max(1, evaluations // SEARCHES)
            fields |= {**VERY_DEEP_FIELDS, "seeds": SEARCHES, "iterations": shared}
        return [attack.model_copy(update=fields)]

    def parts(self) -> Parts:
        invertgrad = self.descent == "invertgrad"
        return Parts(
            start=self.start,
            labels=self.labels,
            distance=Cosine(),
            code=self.code,
            layers=LayerWeights(
                beta=self.beta, function=self.weights, relu_modifier=self.relu_modifier
            ),
            optimizer=Adam(
                lr=self.lr, signed=invertgrad, schedule="steps" if invertgrad else "constant"
            ),
            priors=(TotalVariation(self.tv),),
            box=invertgrad,
            **self.common(),
        )


@register("agic_epochs")
class AGICEpochs(AGIC):
    """AGIC on the updates of several epochs, joined by the samples they have in common (Eq. 5).

    Each update is first inverted alone, for ``matching_iterations``. Images of one epoch are then
    paired with those of the next, most similar pairs first. Finally each sample is optimised again
    on all updates that contain it, so an update of B samples takes part in B searches. If an epoch
    is a single update, no pairing is needed. The total variation is scaled by the weight of each
    update.
    """

    source = "Xu et al. 2022, section IV-B"
    superseded: ClassVar[str] = "joins updates of several epochs"
    reads_all_rounds = True
    budget_fields: ClassVar[frozenset[str]] = frozenset({"iterations", "matching_iterations"})
    modalities: ClassVar[frozenset[str]] = frozenset({"image"})

    matching_iterations: int = parameter(
        2000, "budget of an update before updates are paired", source="AGIC section V-D", ge=1
    )
    gamma: float = parameter(
        0.1, "weight of the updates after the first epoch", source="AGIC section V-A", ge=0
    )
    pooled: bool = parameter(True, "pair by means of 2 x 2 pixels", source="AGIC section IV-B")
    label_filter: bool = parameter(
        True, "pair updates that share an inferred label first", source="AGIC section IV-B"
    )
    only: int | None = parameter(
        None,
        "one epoch, whose updates are inverted alone; none: all epochs jointly",
        source="AGIC VI",
        ge=1,
    )

    def check(self, dataset: DatasetSpec, model: ModelSpec, client: ClientSpec) -> None:
        super().check(dataset, model, client)
        epochs = client.protocol.epochs
        if epochs < (self.only or 2):
            raise IncompatibleError(
                f"attack {self} needs updates of {self.only or 2} epochs, but client {client} "
                f"sends those of {epochs}; use client epochs"
            )
        refused = {
            "searches the random numbers of no update; leave out draws, or use agic": (
                self.draws == "searched"
            ),
            "pairs the updates of one search; leave out seeds, or use agic": self.seeds > 1,
            "searches pixels jointly; leave out code, or use agic": self.code != Pixels(),
            "pairs updates by fixed labels, not labels=joint; use labels=rows": (
                self.labels == "joint"
            ),
        }
        for fault, holds in refused.items():
            if holds:
                raise IncompatibleError(f"attack {self} {fault}")

    @property
    def joins_epochs(self) -> bool:
        return self.only is None

    def rehearse(self, observation: Observation) -> None:
        """Invert one update alone and search one sample jointly, out of thousands of each."""
        search = self._matching(observation)
        search.invert_round(0, self.parts())
        if not self.only:
            search.first_jointly()

    def search(self, observation: Observation) -> Reconstruction:
        search = self._matching(observation)
        return search.alone(self.only - 1) if self.only else search.jointly()

    def _matching(self, observation: Observation) -> EpochMatching:
        pairing = (self.matching_iterations, self.gamma, self.pooled, self.label_filter)
        return EpochMatching(observation, self.parts(), *pairing)
