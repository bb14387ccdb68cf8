"""The cocktail party attack on networks that begin with a dense layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from gleak.attacks.cocktail_party import CocktailParty
from gleak.attacks.input_unmixing import InputUnmixing
from gleak.core.registry import register
from gleak.core.spec import parameter

if TYPE_CHECKING:
    from gleak.unmixing.cpa_search import Term
    from gleak.unmixing.mixtures import White

IMAGE = 3


@register("cpa")
class CPA(InputUnmixing, CocktailParty):
    """Independent components of a dense layer's gradients that vary little from pixel to pixel."""

    source = "CPA section III, Eq. 10 and 14"
    weights: ClassVar[tuple[str, ...]] = ("ne", "tv", "mi")

    tv: float = parameter(
        3.1, "weight of the total variation (images)", source="CPA reference", ge=0
    )

    def priors(self, white: White, shape: tuple[int, ...]) -> dict[str, Callable[[], Term]]:
        """Total variation, of images."""
        from gleak.unmixing.cpa_search import total_variation

        return {"tv": lambda: total_variation(white, shape)} if len(shape) == IMAGE else {}
