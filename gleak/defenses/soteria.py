"""Soteria: gradients of revealing elements of the representation are set to zero."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from typing_extensions import override

from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.defenses.base import DefenseSpec

if TYPE_CHECKING:
    from gleak.models.layer_search import DenseInput


@register("soteria")
class Soteria(DefenseSpec):
    """Columns of one dense layer's weight gradient are set to zero (Sun et al. 2021).

    A column belongs to an element r_i of the representation r(X), the input of that layer for a
    sample X. The defence looks for another representation r' that differs from r in few elements
    (an L0 budget) and maximises the distance of an attacker's sample X' from X. To first order
    X - X' is the inverse of dr/dX times r - r'. Setting r_i to zero moves the sample by
    ||r_i (dr_i/dX)^-1|| = |r_i| / ||dr_i/dX||, because the norm of the pseudo-inverse of a row is
    the inverse of the row's norm. So elements with the smallest derivative relative to their
    magnitude are pruned first: those whose sum over the batch of ||dr_i/dX|| / |r_i| is below the
    ``percentile``.

    In the authors' code the denominator is r_i, or r_i + 0.1, without its absolute value, so that a
    negative element changes the sign of its term and terms may cancel; ours follows the derivation.
    For positive representations, of sigmoids and ReLUs, only the 0.1 differs. An element that
    is zero, as after a ReLU, adds nothing to the sum: its derivative is zero too and the column
    contains nothing of that sample. With the 0.1 it adds nothing either. Elements that are zero in
    the whole batch count as pruned first, as with the authors, which does not change the update.

    The representation is that of the broadcast model in evaluation mode, without dropout. In an
    update of several rounds or local steps each of them gets the same mask. Gradients of other
    layers, and the bias gradient of the defended layer, are sent unchanged. Random numbers are
    drawn from torch's global generator.
    """

    source = "Sun et al. 2021; MKOR section 4; ROG section 5"

    takes_single_samples: ClassVar[bool] = True
    budget_fields: ClassVar[frozenset[str]] = frozenset({"probes"})

    percentile: float = parameter(
        80.0,
        "percentile of the sums, below which elements are pruned",
        unit="%",
        source="ROG section 5; Sun et al.'s code is set to 1 for DLG and 60 for InvertGrad",
        ge=0,
        lt=100,
    )
    layer: Literal["first_dense", "classifier"] = parameter(
        "first_dense",
        "layer whose input is the representation; Sun et al.'s networks have only one",
    )
    probes: int | None = parameter(
        64, "random directions to estimate derivatives; none: exact", source="ours", ge=1
    )

    @override
    def check_network(self, network: torch.nn.Module, shape: tuple[int, ...]) -> None:
        from gleak.defenses.sensitivity import evaluating
        from gleak.models.examination import check_differentiable
        from gleak.models.parameters import trained_parameters

        with evaluating(network):
            entry = self._entry(network, next(network.parameters()).new_zeros(1, *shape))
            check_differentiable(network, shape, entry.layer)
        if f"{entry.layer}.weight" not in trained_parameters(network):
            raise IncompatibleError(
                f"defense {self} changes the gradient of {entry.layer}.weight, which this model "
                "freezes or computes from other parameters; choose another defence"
            )

    @override
    def with_samples(
        self,
        update: dict[str, torch.Tensor],
        model: torch.nn.Module,
        inputs: torch.Tensor,
        labels: torch.Tensor,
    ) -> dict[str, torch.Tensor]:

        from gleak.defenses.sensitivity import at_least_percentile, evaluating, sensitivities

        with evaluating(model):
            entry = self._entry(model, inputs[:1])
            kept = at_least_percentile(
                sensitivities(model, entry, inputs, self.probes), self.percentile
            )
        weight = f"{entry.layer}.weight"
        return {**update, weight: torch.where(kept, update[weight], 0)}

    def _entry(self, model: torch.nn.Module, sample: torch.Tensor) -> DenseInput:
        """Return the defended layer and its input for one sample."""

        from gleak.models.layer_search import first_dense_input, last_dense_input

        find = {"first_dense": first_dense_input, "classifier": last_dense_input}[self.layer]
        with torch.no_grad():
            entry = find(model, sample)
        if entry is None:
            raise IncompatibleError(
                f"defense {self}: the model has no dense layer that is called once with one "
                "vector per sample; choose another model or defence"
            )
        return entry
