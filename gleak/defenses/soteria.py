"""Soteria: elements of the representation that give samples away are left out of the update."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from typing_extensions import override

from gleak.artifacts.encodings import Dense, Encoded
from gleak.core.errors import IncompatibleError
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.defenses.base import DefenseSpec, Memory

if TYPE_CHECKING:
    from torch import Generator, Tensor, nn

    from gleak.models.embedding import Entry


@register("soteria")
class Soteria(DefenseSpec):
    """Columns of one dense layer's weight gradient are set to zero (Sun et al. 2021).

    A column belongs to an element r_i of the representation r(X), which that layer is given of a
    sample X. The defence looks for another representation r' that differs from r in few elements
    (an L0 budget) and from which an attacker's sample X' lies as far from X as can be. To first
    order X - X' is the inverse of dr/dX times r - r'. Setting r_i to zero moves the sample by
    ||r_i (dr_i/dX)^-1|| = |r_i| / ||dr_i/dX||, the pseudo-inverse of a row having the inverse of
    its length. So elements whose derivative is the smallest for their magnitude go first: those
    whose sum over the batch of ||dr_i/dX|| / |r_i| lies below the ``percentile``.

    In the authors' code the denominator is r_i, or r_i + 0.1, without its absolute value, so that a
    negative element turns the sign of its term and terms may cancel; ours follows the derivation.
    For positive representations, of sigmoids and ReLUs, only the 0.1 is different. An element that
    is zero, as behind a ReLU, adds nothing to the sum: its derivative is zero too and the column
    holds nothing of that sample. With the 0.1 it adds nothing either. Elements that are zero in the
    whole batch count as pruned first, as with the authors, which changes nothing in the update.

    The representation is that of the broadcast model in evaluation mode, without dropout. Of an
    update of several rounds or local steps every one gets the same mask. What other layers tell of
    the samples is sent as it is, also the defended layer's bias gradient.
    """

    source = "Sun et al. 2021; MKOR section 4; ROG section 5"

    budget_fields: ClassVar[frozenset[str]] = frozenset({"probes"})

    percentile: float = parameter(
        80.0,
        "of the sums, below which elements are pruned",
        unit="%",
        source="ROG section 5; Sun et al.'s code is set to 1 for DLG and 60 for InvertGrad",
        ge=0,
        lt=100,
    )
    layer: Literal["first_dense", "classifier"] = parameter(
        "first_dense", "whose input is the representation; Sun et al.'s networks have one alone"
    )
    probes: int | None = parameter(
        64, "random directions to estimate derivatives from; none: exact", source="ours", ge=1
    )

    @override
    def check_network(self, network: nn.Module, shape: tuple[int, ...]) -> None:
        """A dense layer that is given a representation."""
        from gleak.defenses.representation import evaluating

        with evaluating(network):
            self._entry(network, next(network.parameters()).new_zeros(1, *shape))

    @override
    def with_samples(
        self, update: dict[str, Tensor], model: nn.Module, inputs: Tensor, labels: Tensor
    ) -> dict[str, Tensor]:
        """Random numbers are torch's own.

        Raises:
            IncompatibleError: the model has no such layer.
        """
        import torch

        from gleak.defenses.representation import at_least_percentile, evaluating, sensitivities

        with evaluating(model):
            entry = self._entry(model, inputs[:1])
            kept = at_least_percentile(
                sensitivities(model, entry, inputs, self.probes), self.percentile
            )
        weight = f"{entry.layer}.weight"
        return {**update, weight: torch.where(kept, update[weight], 0)}

    def _entry(self, model: nn.Module, sample: Tensor) -> Entry:
        """The defended layer and what it is given of one sample."""
        import torch

        from gleak.models.embedding import first_dense_entry, last_dense_entry

        find = {"first_dense": first_dense_entry, "classifier": last_dense_entry}[self.layer]
        with torch.no_grad():
            entry = find(model, sample)
        if entry is None:
            raise IncompatibleError(
                f"defense {self}: the model has no dense layer with a bias that is passed once and "
                "given one vector of each sample; choose another model or defence"
            )
        return entry

    @override
    def protect(
        self, update: dict[str, Tensor], generator: Generator, memory: Memory
    ) -> dict[str, Encoded]:
        """Nothing is left to do after `with_samples`."""
        return {name: Dense(value.numpy()[None]) for name, value in update.items()}
