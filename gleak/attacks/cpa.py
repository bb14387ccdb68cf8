"""The cocktail party attack (CPA): its unmixing, and the attack on networks that begin dense."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, Literal

from typing_extensions import override

from gleak.attacks.attack_summary import LABELS, AttackSummary
from gleak.attacks.matching.optimizers import Adam
from gleak.attacks.unmixing_attack import InputUnmixing, UnmixingAttack
from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.core.spec import parameter

if TYPE_CHECKING:
    from gleak.attacks.unmixing.cpa_search import Objective, Term
    from gleak.attacks.unmixing.mixtures import Mixture, Unmixing, White
    from gleak.runtime.checkpointing import Part

IMAGE = 3
TERMS = {
    "ne": "negentropy",
    "tv": "total variation",
    "l1": "magnitude of embeddings",
    "sr": "mixed signs",
    "mi": "dependence",
}
"""Name of each term in tables, by the field of its weight."""
CHOSEN = "ours, chosen on training images"


class CocktailParty(UnmixingAttack):
    """Base class of CPA: Adam on an unmixing matrix with normalised rows (CPA Eq. 10 and 11).

    The weights of the terms are tuned on a separate batch, as in the paper; weights tuned for one
    network and batch size suit others badly.
    """

    budget_fields: ClassVar[frozenset[str]] = frozenset(
        {"iterations", "lr", "tolerance", "initial"}
    )
    weights: ClassVar[tuple[str, ...]] = ("ne", "mi")

    iterations: int = parameter(25000, "budget of one victim", source="CPA section V-A", ge=1)
    lr: float = parameter(1e-3, "learning rate of Adam", source="CPA reference", gt=0)
    tolerance: float | None = parameter(
        None,
        "relative improvement over 50 iterations below which a victim stops; none: it never does",
        source="ours",
        ge=0,
    )
    ne: float = parameter(1.0, "weight of the negentropy", source="CPA Eq. 10", ge=0)
    mi: float = parameter(1.47, "weight of the rows' dependence", source="CPA reference", ge=0)
    temperature: float = parameter(12.4, "T of the rows' dependence", source="CPA reference", gt=0)
    contrast: Literal["log_cosh", "negentropy"] = parameter(
        "log_cosh",
        "mean log cosh of a source, or its distance from a Gaussian's, which is squared",
        source="CPA Eq. 8; negentropy: Hyvarinen and Oja 2000, Eq. 25",
    )
    initial: Literal["identity", "fastica"] = parameter(
        "identity",
        "first unmixing of the whitened gradients; fastica: its fixed point",
        source="CPA reference; fastica: Hyvarinen and Oja 2000",
    )

    @property
    @override
    def tuned_fields(self) -> frozenset[str]:
        tuned = (*self.weights, "temperature")
        return super().tuned_fields | {key for key in tuned if getattr(self, key)}

    @override
    def traits(self) -> AttackSummary:
        """Return the summary, in which the first term with a weight is the main one."""
        weighted = tuple(TERMS[name] for name in self.weights if getattr(self, name))
        return AttackSummary(
            losses=weighted[:1],
            terms=weighted[1:],
            optimizers=(str(Adam(lr=self.lr)),),
            labels=LABELS["argmin"],
        )

    @override
    def unmix(self, mixture: Mixture, count: int, shape: tuple[int, ...], part: Part) -> Unmixing:
        from gleak.attacks.unmixing.cpa_search import descend
        from gleak.attacks.unmixing.mixtures import Unmixing, whiten

        white = whiten(mixture.weight, count)
        found = descend(
            self.objective(white, shape),
            self.first(white, shape),
            Adam(lr=self.lr),
            self.iterations,
            self.tolerance,
            part,
        )
        rows = found.matrices.double() @ white.transform
        return Unmixing(rows, found.iterations, found.objective)

    def objective(self, white: White, shape: tuple[int, ...]) -> Objective:
        """Return the weighted sum of all terms whose weight is not zero."""
        from gleak.attacks.unmixing.cpa_search import GAUSSIAN, Objective, dependence, negentropy

        reference = GAUSSIAN if self.contrast == "negentropy" else 0.0
        terms: dict[str, Callable[[], Term]] = {
            "ne": lambda: negentropy(white, reference),
            **self.priors(white, shape),
            "mi": lambda: dependence(self.temperature),
        }
        weighted = [(getattr(self, name), make) for name, make in terms.items()]
        return Objective([(weight, make()) for weight, make in weighted if weight])

    def first(self, white: White, shape: tuple[int, ...]) -> torch.Tensor:
        """Return the initial unmixing matrices; Shape (V, n, n)."""

        from gleak.attacks.unmixing.independent_components import LAPLACIAN, fixed_point

        if self.initial == "fastica":
            return fixed_point(white.signals[:, :, None], LAPLACIAN)
        victims, count, _ = white.signals.shape
        return torch.eye(count).to(white.signals).repeat(victims, 1, 1)

    @abstractmethod
    def priors(self, white: White, shape: tuple[int, ...]) -> dict[str, Callable[[], Term]]:
        """Return the prior terms on the sources, by the field of their weight."""


@register("cpa")
class CPA(InputUnmixing, CocktailParty):
    """Independent components of a dense layer's gradients with a total variation prior.

    Rate and weights were chosen on training images (docs/results/defaults.md). The authors' code
    has lr=1e-3, mi=1.47 and tv=3.1.
    """

    source = "CPA section III, Eq. 10 and 14"
    weights: ClassVar[tuple[str, ...]] = ("ne", "tv", "mi")

    lr: float = parameter(0.02, "learning rate of Adam", source=CHOSEN, gt=0)
    mi: float = parameter(0.02, "weight of the rows' dependence", source=CHOSEN, ge=0)
    tv: float = parameter(
        2.0,
        "weight of the total variation (images): mean absolute difference between neighbours, "
        "along height plus width, of sources with a variance of 1",
        source=CHOSEN,
        ge=0,
    )

    @override
    def priors(self, white: White, shape: tuple[int, ...]) -> dict[str, Callable[[], Term]]:
        from gleak.attacks.unmixing.cpa_search import total_variation

        return {"tv": lambda: total_variation(white, shape)} if len(shape) == IMAGE else {}
