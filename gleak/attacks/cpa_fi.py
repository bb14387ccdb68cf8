"""The cocktail party attack on convolutional networks: unmixing, then feature inversion."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

from gleak.attacks.attacker import SearchCost
from gleak.attacks.base import LABELS, AttackSummary
from gleak.attacks.cpa import CocktailParty, Term, magnitude, mixed_signs
from gleak.attacks.inversion_attack import EmbeddingUnmixing, InversionSearch
from gleak.attacks.matching.choice import check_gradients
from gleak.attacks.matching.distances import Cosine
from gleak.attacks.matching.gradient_matching import GradientMatching
from gleak.attacks.matching.image_inversion import GuidedInversion
from gleak.attacks.matching.parts import Compared, Parts
from gleak.attacks.matching.problem import Problem
from gleak.attacks.observation import Observation
from gleak.attacks.unmixing.mixtures import White
from gleak.clients.base import ClientSpec
from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.models.parameters import check_trained


class SparseCocktailParty(CocktailParty):
    """CPA's separator of sparse sources of one sign, such as embeddings after a ReLU (Eq. 11)."""

    weights: ClassVar[tuple[str, ...]] = ("ne", "l1", "sr", "mi")

    mi: float = parameter(5.3, "weight of the rows' dependence", source="CPA reference", ge=0)
    temperature: float = parameter(7.7, "T of the rows' dependence", source="CPA reference", gt=0)
    l1: float = parameter(5.0, "weight of the embeddings' magnitude", source="CPA reference", ge=0)
    sr: float = parameter(
        0.13, "weight of the embeddings' mixed signs", source="CPA reference", ge=0
    )

    def priors(self, white: White, shape: tuple[int, ...]) -> dict[str, Callable[[], Term]]:
        return {"l1": lambda: magnitude(white), "sr": lambda: mixed_signs(white)}


@register("cpa_fi")
class CPAFI(InversionSearch, SparseCocktailParty, EmbeddingUnmixing):
    """Unmixing of embeddings from the first dense layer's gradient, then feature inversion.

    ``iterations``, ``lr`` and ``tolerance`` belong to the unmixing; CPA gives one number of
    iterations for both steps. Apart from that layer only the classifier's gradient is used, for the
    labels. If an embedding could not be separated, its image is inverted from a zero embedding and
    therefore smooth, and the victim has not converged. `sparse_fi` unmixes embeddings exactly.
    """

    source = "CPA section IV, Eq. 11 and 12"
    superseded: ClassVar[str] = "sparse_fi unmixes the same embeddings by their zeros"
    budget_fields: ClassVar[frozenset[str]] = CocktailParty.budget_fields | {"inversion_iterations"}
    tuned: ClassVar[frozenset[str]] = frozenset({"ne", "l1", "sr", "mi", "temperature", "tv"})

    def summary(self) -> AttackSummary:
        return self.unmixing_summary().then(EmbeddingUnmixing.summary(self))


@register("cpa_fi_gm")
class CPAFIGM(CPAFI):
    """Feature inversion of unmixed embeddings, guided by gradient matching.

    The i-th image is inverted from the i-th embedding. CPA does not say how the labels are known.
    Here they are optimised with the images, as in its gradient matching, because labels inferred
    from the gradient are not ordered like the embeddings.
    """

    source = "CPA section IV-B, Eq. 13"
    tuned: ClassVar[frozenset[str]] = CPAFI.tuned | {"gm"}

    gm: float = parameter(
        0.1,
        "weight of the gradients' cosine; CPA names no value",
        source="ours; of 0.01 to 10 best or near it on training images of CIFAR-10",
        gt=0,
    )
    compared: Compared = parameter(
        "sent", "values matched if a client sends only some", source="ours"
    )

    def reads(self, model: torch.nn.Module, input_shape: tuple[int, ...]) -> None:
        return None

    def check_network(
        self, network: torch.nn.Module, shape: tuple[int, ...], classes: int, client: ClientSpec
    ) -> None:
        super().check_network(network, shape, classes, client)
        check_trained(network, super().reads(network, shape) or frozenset())
        check_gradients(network, client.loss, shape, classes)

    def cost(self) -> SearchCost:
        """Return the cost of the inversion and of gradient matching."""
        inverting = super().cost()
        return replace(inverting, passes=inverting.passes + SearchCost().passes)

    def summary(self) -> AttackSummary:
        plain = super().summary()
        terms = (*plain.terms, "cosine of gradients")
        return replace(plain, terms=terms, labels=LABELS["joint"])

    def problem(self, observation: Observation, embeddings: torch.Tensor) -> Problem:
        parts = Parts(
            **vars(self.search_parts()) | {"priors": ()},
            labels="joint",
            distance=Cosine(),
            compared=self.compared,
        )
        matching = GradientMatching.of(observation, parts)
        features = self.inversion(observation, embeddings)
        return GuidedInversion.of(features, matching, self.gm)
