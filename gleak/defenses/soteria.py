"""Soteria: gradients of revealing elements of the representation are set to zero."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ClassVar, Literal

from gleak.artifacts.protocol import Pruning
from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.defenses.base import DefenseSpec
from gleak.models.batching import batch_slices, memory_slices
from gleak.models.examination import check_differentiable
from gleak.models.layer_search import (
    DenseInput,
    features_before,
    first_dense_input,
    last_dense_input,
)
from gleak.models.parameters import Tensors, trained_parameters

Features = Callable[["torch.Tensor"], "torch.Tensor"]
"""Function from samples, Shape (N, *shape), to their representations, Shape (N, E)."""


@register("soteria")
class Soteria(DefenseSpec):
    """Columns of one dense layer's weight gradient are set to zero (Sun et al. 2021).

    A column belongs to an element r_i of the representation r(X), the input of that layer for a
    sample X. The defence looks for another representation r' that differs from r in few elements
    (an L0 budget) and maximises the distance of an attacker's sample X' from X. To first order
    X - X' is the inverse of dr/dX times r - r', so setting r_i to zero moves the sample by
    ||r_i (dr_i/dX)^-1|| = |r_i| / ||dr_i/dX||. Elements with the smallest derivative relative to
    their magnitude are pruned first: those whose sum over the batch of ||dr_i/dX|| / |r_i| is below
    the ``percentile``.

    In the authors' code the denominator is r_i, or r_i + 0.1, without its absolute value, so that a
    negative element changes the sign of its term and terms may cancel; ours follows the derivation.
    For positive representations, of sigmoids and ReLUs, only the 0.1 differs. An element that
    is zero, as after a ReLU, adds nothing to the sum, with the 0.1 neither: its derivative is zero
    too. Elements that are zero in the whole batch count as pruned first, as with the authors.

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

    @property
    def pruning(self) -> Pruning:
        return "columns"

    def check_network(self, network: torch.nn.Module, shape: tuple[int, ...]) -> None:
        with evaluating(network):
            entry = self._entry(network, next(network.parameters()).new_zeros(1, *shape))
            check_differentiable(network, shape, entry.layer)
        if f"{entry.layer}.weight" not in trained_parameters(network):
            raise IncompatibleError(
                f"defense {self} changes the gradient of {entry.layer}.weight, which this model "
                "freezes or computes from other parameters; choose another defence"
            )

    def with_samples(
        self, update: Tensors, model: torch.nn.Module, inputs: torch.Tensor, labels: torch.Tensor
    ) -> Tensors:
        with evaluating(model):
            entry = self._entry(model, inputs[:1])
            sums = sensitivities(model, entry, inputs, self.probes)
        kept = sums >= torch.quantile(sums, self.percentile / 100)
        weight = f"{entry.layer}.weight"
        return {**update, weight: torch.where(kept, update[weight], 0)}

    def _entry(self, model: torch.nn.Module, sample: torch.Tensor) -> DenseInput:
        """Return the defended layer and its input for one sample."""
        find = {"first_dense": first_dense_input, "classifier": last_dense_input}[self.layer]
        with torch.no_grad():
            entry = find(model, sample)
        if entry is None:
            raise IncompatibleError(
                f"defense {self}: the model has no dense layer that is called once with one "
                "vector per sample; choose another model or defence"
            )
        return entry


@contextmanager
def evaluating(network: torch.nn.Module) -> Iterator[None]:
    """Set all layers to evaluation mode in the block, so that samples do not interact."""
    training = [layer for layer in network.modules() if layer.training]
    network.eval()
    try:
        yield
    finally:
        for layer in training:
            layer.training = True


def sensitivities(
    network: torch.nn.Module, entry: DenseInput, inputs: torch.Tensor, probes: int | None
) -> torch.Tensor:
    """Compute the sum of ||dr_i / dX|| / |r_i| over samples X for each element r_i; Shape (E).

    Derivatives are estimated from that many probes, or exact if there are no more elements than
    probes, at no higher cost. A sample in which an element is zero adds nothing to it.
    """
    features, elements = features_before(network, entry.layer), entry.embeddings.shape[1]
    total = inputs.new_zeros(elements, dtype=torch.float64)
    for chunk in batch_slices(network, inputs):
        samples = inputs[chunk]
        with torch.no_grad():
            magnitudes = features(samples).abs().double()
        if probes is None or elements <= probes:
            norms = exact_norms(features, samples)
        else:
            norms = estimated_norms(features, samples, probes)
        total += torch.where(magnitudes == 0, 0, norms / magnitudes).sum(0)
    return total


def exact_norms(features: Features, samples: torch.Tensor) -> torch.Tensor:
    """Compute ||dr_i / dX|| of each element by its sample, Shape (N, E), for (N, *shape)."""
    attached = samples.detach().requires_grad_()
    values = features(attached)
    elements = values.shape[1]
    norms = []
    for chunk in memory_slices(elements, samples.shape):
        indices = torch.arange(elements, device=values.device)[chunk]
        one_hot = torch.nn.functional.one_hot(indices, elements).to(values)
        outputs = one_hot[:, None].expand(-1, *values.shape)
        (derivatives,) = torch.autograd.grad(
            values, attached, outputs, retain_graph=True, is_grads_batched=True
        )
        norms.append(torch.linalg.vector_norm(derivatives.flatten(2), dim=2))
    return torch.cat(norms).T


def estimated_norms(features: Features, samples: torch.Tensor, probes: int) -> torch.Tensor:
    """Estimate the norms of `exact_norms` from random directions, each shared by all elements.

    A direction v of independent signs has E[(J v)_i^2] = ||J_i||^2 for the Jacobian J. The relative
    standard deviation of a norm is at most 1 / sqrt(2 probes), and 0 for a row with one entry. J v
    is the derivative of u^T J v by u, for any u, which needs no forward-mode differentiation.
    Random numbers are drawn from torch's global CPU generator, so that the device changes no draw.
    """
    attached = samples.detach().requires_grad_()
    values = features(attached)
    weights = torch.zeros_like(values, requires_grad=True)
    (derivatives,) = torch.autograd.grad(values, attached, weights, create_graph=True)
    squares = torch.zeros_like(values)
    for _ in range(probes):
        signs = 2 * torch.randint(2, samples.shape).to(samples) - 1
        (change,) = torch.autograd.grad(derivatives, weights, signs, retain_graph=True)
        squares += change.square()
    return (squares / probes).sqrt()
