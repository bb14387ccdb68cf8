"""Components that an attack by search is assembled from."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from gleak.attacks.matching.codes import CodeSpec, Pixels
from gleak.attacks.matching.distances import L2, DistanceSpec
from gleak.attacks.matching.optimizers import OptimizerSpec
from gleak.attacks.matching.priors import Prior
from gleak.attacks.matching.starts import StartSpec
from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch
from gleak.data.base import DatasetSpec

LabelRule = Literal["known", "joint", "enumerated", "sign", "rows", "argmin", "counts", "auto"]
"""Source of the labels: granted, optimised together with the samples, enumerated, or inferred from
the classifier's gradient by a rule (`gleak.attacks.matching.label_inference.RULES`)."""

ClientModel = Literal["one_step", "unrolled"]
"""The attacker's model of the client's training: one step, or all local steps."""

Compared = Literal["sent", "nonzero", "all"]
"""Values of the gradient that are matched: those that the client declares as sent; only nonzero
ones, as a defence such as Soteria may have set others to zero; or all, unsent ones as zeros."""

Draws = Literal["mean", "searched"]
"""Random numbers of a client's variational layers (PRECODE): zero, which is their mean, or searched
together with the samples."""

Finish = Literal["cut", "stretched", "equalized"]
"""Conversion of the final samples to [0, 1]: clipped, divided by the largest magnitude, or divided
and then equalised by their histogram."""

Result = Literal["lowest", "mean"]
"""Result of several searches: that of least objective, or the mean of their samples."""

LayerFunction = Literal["linear", "exponential", "logarithmic"]
FUNCTIONS: Mapping[LayerFunction, Callable[[int], float]] = MappingProxyType(
    {"linear": float, "exponential": math.exp, "logarithmic": math.log}
)
"""Functions of a convolution's position, counted from 1, that the weights follow."""
CONVOLUTION, DENSE = 4, 2
"""Dimensions of a layer's weight."""


@dataclass(frozen=True, kw_only=True)
class LayerWeights:
    """Weight of each layer's gradient in the distance.

    The first convolution has weight 1 and the last ``beta`` (Eq. 7), dense layers have the mean
    weight of the convolutions (Eq. 8). Biases and batch normalisation have the weight of the
    convolution or dense layer before them; the paper does not specify them.

    Args:
        beta: weight of the last convolution; below 1 weights fall.
        function: of the layer's position, that weights follow between the two.
        relu_modifier: divide a convolution's weight by the share of its gradient that is nonzero.
    """

    beta: float
    function: LayerFunction = "linear"
    relu_modifier: bool = True

    def of(self, observed: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Compute each parameter's weights, Shape (V), from its observed gradient (V, *shape)."""
        along = self.along(sum(value.ndim - 1 == CONVOLUTION for value in observed.values()))
        dense = sum(along) / len(along) if along else 1.0
        left = iter(along)
        weights: dict[str, torch.Tensor] = {}
        current: torch.Tensor | None = None
        for name, value in observed.items():
            if value.ndim - 1 == CONVOLUTION:
                current = next(left) * self._modifier(value)
            elif value.ndim - 1 == DENSE:
                current = value.new_full((len(value),), dense)
            weights[name] = value.new_ones(len(value)) if current is None else current.to(value)
        return weights

    def along(self, convolutions: int) -> list[float]:
        """Compute the weight of each convolution, before the modifier (Eq. 7)."""
        rise = FUNCTIONS[self.function]
        first, last = rise(1), rise(max(convolutions, 2))
        places = range(1, convolutions + 1)
        return [1 + (self.beta - 1) * (rise(place) - first) / (last - first) for place in places]

    def _modifier(self, gradient: torch.Tensor) -> torch.Tensor:
        """Compute one over the share of nonzero entries, or 1 without any; Shape (V)."""
        if not self.relu_modifier:
            return gradient.new_ones(len(gradient))
        shares = (gradient != 0).reshape(len(gradient), -1).double().mean(1)
        return shares.where(shares > 0, 1).reciprocal()


@dataclass(frozen=True, kw_only=True)
class SearchParts:
    """Components and settings of a search, whatever it minimises.

    Args:
        start: the first dummy samples.
        optimizer: rule by which the dummy samples move.
        iterations: budget of one victim, restarts included.
        threshold: relative distance at which a victim has converged; None: no search stops early.
        restarts: number of times that a diverged or stalled search may restart.
        patience: evaluations without a better distance after which a search has stalled.
        priors: terms that are added to the objective, such as the total variation of images.
        box: clip every unknown of a sample to [0, 1] after each step.
        finish: conversion of the final samples to [0, 1].
    """

    start: StartSpec
    optimizer: OptimizerSpec
    iterations: int
    threshold: float | None = None
    restarts: int = 0
    patience: int | None = None
    priors: Sequence[Prior] = ()
    box: bool = False
    finish: Finish = "cut"

    @property
    def used_priors(self) -> list[Prior]:
        """The priors whose weight is not zero."""
        return [prior for prior in self.priors if prior.weight]


@dataclass(frozen=True, kw_only=True)
class Parts(SearchParts):
    """Components of an attack by gradient matching; `gleak.attacks.matching.engine.match` runs it.

    Args:
        labels: source of the labels.
        code: parametrisation of the samples.
        distance: between dummy and observed gradient.
        layers: weights of the layers in the distance; None: all equal.
        client_model: treatment of an update of several local steps.
        compared: values that are matched.
        draws: treatment of the random numbers that variational layers draw.
        skip: parameters that are left out of the match
            (`gleak.attacks.matching.gradient_matching.skipped_parameters`).
        label_term: weight of the output's squared distance to the label (CPL, line 12: alpha).
    """

    labels: LabelRule
    distance: DistanceSpec
    code: CodeSpec = field(default_factory=Pixels)
    layers: LayerWeights | None = None
    client_model: ClientModel = "one_step"
    compared: Compared = "sent"
    draws: Draws = "mean"
    skip: str | None = None
    label_term: float = 0.0

    def check(self, dataset: DatasetSpec) -> None:
        """Check that the components fit the samples of a dataset, and each other.

        Raises:
            IncompatibleError: names the component, and what it does not fit.
        """
        self.start.check(dataset)
        self.code.check(dataset)
        if not self.optimizer.needs_residuals:
            return
        unsupported = {
            f"distance={self.distance}": type(self.distance) is not L2,
            f"code={self.code}": not isinstance(self.code, Pixels),
            f"draws={self.draws}": self.draws != "mean",
            "weights of layers": self.layers is not None,
            **{f"a {prior.title}": True for prior in self.used_priors},
            "a label term": self.label_term > 0,
        }
        present = [name for name, used in unsupported.items() if used]
        if present:
            raise IncompatibleError(
                f"optimizer {self.optimizer} minimises the squared distance of gradients in the "
                f"samples alone, not with {', '.join(present)}; use optimizer=lbfgs"
            )
