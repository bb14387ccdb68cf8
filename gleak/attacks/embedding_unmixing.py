"""Base of the attacks that unmix embeddings: a dense layer's inputs in a convolutional network."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from gleak.attacks.cocktail_party import CocktailParty
from gleak.core.errors import IncompatibleError
from gleak.core.spec import parameter

if TYPE_CHECKING:
    from gleak.clients.base import ClientSpec
    from gleak.data.base import DatasetSpec
    from gleak.models.base import ModelSpec
    from gleak.observation import Observation
    from gleak.unmixing.cpa_search import Term
    from gleak.unmixing.mixtures import Sources, White

TWO_SIGNS = ("tanh", "leaky_relu")


class EmbeddingUnmixing(CocktailParty):
    """Sources that are sparse and of one sign, as embeddings behind a ReLU are (CPA Eq. 11)."""

    weights: ClassVar[tuple[str, ...]] = ("ne", "l1", "sr", "mi")

    mi: float = parameter(5.3, "weight of the rows' dependence", source="CPA reference", ge=0)
    temperature: float = parameter(7.7, "T of the rows' dependence", source="CPA reference", gt=0)
    l1: float = parameter(5.0, "weight of the embeddings' magnitude", source="CPA reference", ge=0)
    sr: float = parameter(
        0.13, "weight of the embeddings' mixed signs", source="CPA reference", ge=0
    )

    def check(self, dataset: DatasetSpec, model: ModelSpec, client: ClientSpec) -> None:
        """Refuse activations that leave embeddings of both signs, too.

        Raises:
            IncompatibleError: see `AttackSpec.check`.
        """
        super().check(dataset, model, client)
        if (activation := getattr(model, "activation", "relu")) in TWO_SIGNS:
            raise IncompatibleError(
                f"attack {self} seeks embeddings that are not negative, and model {model} has "
                f"activation={activation}; use activation=relu"
            )

    def priors(self, white: White, shape: tuple[int, ...]) -> dict[str, Callable[[], Term]]:
        """Sparse, and of one sign."""
        from gleak.unmixing.cpa_search import magnitude, mixed_signs

        return {"l1": lambda: magnitude(white), "sr": lambda: mixed_signs(white)}

    def unmix_embeddings(self, observation: Observation) -> Sources:
        """Embeddings of every victim, their sign settled; zero where they could not be told apart.

        Raises:
            IncompatibleError: see `UnmixingAttack.separate`.
        """
        from dataclasses import replace

        from gleak.unmixing.mixtures import embeddings_by_sign

        found = self.separate(observation)
        values = embeddings_by_sign(found.values, found.factors).nan_to_num(nan=0.0)
        return replace(found, values=values)
