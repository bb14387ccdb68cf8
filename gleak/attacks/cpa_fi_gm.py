"""Unmixing, feature inversion and gradient matching together."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from typing_extensions import override

from gleak.attacks.cpa_fi import CPAFI
from gleak.attacks.summary import LABELS, AttackSummary
from gleak.core.registry import register
from gleak.core.spec import Spec, parameter
from gleak.matching.distances.cosine import Cosine
from gleak.matching.parts import Compared, Parts
from gleak.observation import Observation

if TYPE_CHECKING:
    from torch import Tensor, nn

    from gleak.matching.image_inversion import GuidedInversion


@register("cpa_fi_gm")
class CPAFIGM(CPAFI):
    """Images that have the unmixed embeddings and, as a batch, the observed gradient.

    The i-th embedding is sought for the i-th image. CPA does not say how the labels are known: here
    they are optimised with the images, as its gradient matching does, for labels read off the
    gradient come in an order of their own.
    """

    source = "CPA section IV-B, Eq. 13"

    gm: float = parameter(
        0.1,
        "weight of the gradients' cosine; CPA names no value",
        source="ours; of 0.01 to 10 best or near it on training images of CIFAR-10",
        gt=0,
    )
    compared: Compared = parameter(
        "sent", "values matched where a client sent only some", source="ours"
    )

    def reads(self, model: nn.Module, input_shape: tuple[int, ...]) -> None:
        """All parameters."""

    def setting(self) -> Spec:
        """The weight is tuned for each setting, too; see `CocktailParty.setting`."""
        default = type(self).model_fields["gm"].default
        return super().setting().model_copy(update={"gm": default})

    @override
    def traits(self) -> AttackSummary:
        found = super().traits()
        terms = (*found.terms, "cosine of gradients")
        return replace(found, terms=terms, labels=LABELS["joint"])

    @override
    def problem(self, observation: Observation, embeddings: Tensor) -> GuidedInversion:
        from gleak.matching.gradient_matching import GradientMatching
        from gleak.matching.image_inversion import GuidedInversion

        parts = Parts(
            **vars(self.search_parts()) | {"total_variation": 0.0},
            labels="joint",
            distance=Cosine(),
            compared=self.compared,
        )
        matching = GradientMatching.of(observation, parts)
        return GuidedInversion.of(self.inversion(observation, embeddings), matching, self.gm)
