"""Samples in the bins of a planted layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from gleak.attacks.isolated_rows import ROUNDING, Rows, SampleRowsAttack
from gleak.attacks.observation import Observation
from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.crafting.imprint import planted_layer


@register("imprint")
class ImprintAttack(SampleRowsAttack):
    """Robbing the Fed: samples that are alone in a bin of a planted layer, in closed form.

    The parameters are crafted by `imprint`. The gradient of the samples between two edges is the
    difference of neighbouring rows if bins are cumulative, and that of the row itself if they are
    sparse. The ratio of the weights' gradient and the bias's is the sample. What the rows measure
    of it must be in the bin: where rounding hides the bias's gradient, as in differences of
    weights, the sample is scaled so that it is. That is its brightness or, of rows with noise, what
    the weights that were broadcast measure.

    Sums over clients are those of one larger batch, so `secure_aggregation` changes nothing but the
    number of samples. For clients that take several steps, plant a layer with sparse bins.
    """

    source = "Fowl et al. 2022 (Robbing the Fed)"
    crafting: ClassVar[str | None] = "imprint"

    def rows(self, observation: Observation, weight: torch.Tensor, bias: torch.Tensor) -> Rows:
        planted: Any = observation.model.get_submodule(planted_layer(observation.model))
        broadcast = planted.enter.weight.detach()
        measured = broadcast / broadcast.sum(1, keepdim=True)
        return in_bins(weight, bias, observation.secret, measured)


def in_bins(
    weight: torch.Tensor,
    bias: torch.Tensor,
    secret: Mapping[str, np.ndarray],
    measured: torch.Tensor | None = None,
) -> Rows:
    """Read the candidates off the gradients of a layer with bins.

    A sample in a bin of neighbouring rows activates one of the two, so its scale is between those
    at which it activates one and the other, whichever is less.

    Args:
        weight: Shape (V, K, F).
        bias: Shape (V, K).
        secret: of `gleak.crafting.imprint.ImprintCrafting.set_bins`.
        measured: weights with which each row measures a sample, of sum 1; None: its brightness;
            Shape (K, F).
    """
    equal = torch.full_like(weight[0], 1 / weight.shape[2])
    lower = upper = equal if measured is None else measured.to(weight)
    if not secret["sparse"][0]:
        upper = torch.cat([lower[1:], equal[:1]])
        last = torch.zeros_like(bias[:, :1])
        weight = weight - torch.cat([weight[:, 1:], last[..., None].expand_as(weight[:, :1])], 1)
        bias = bias - torch.cat([bias[:, 1:], last], 1)
    edges = torch.from_numpy(secret["edges"]).to(weight)
    first = edges[:-1] / torch.linalg.vecdot(weight, lower)
    second = edges[1:] / torch.linalg.vecdot(weight, upper)
    scales = bias.reciprocal()
    scales = torch.where(scales.isfinite(), scales, (first + second) / 2)
    scales = scales.maximum(first.minimum(second)).minimum(first.maximum(second))
    norms = weight.norm(dim=2)
    filled = norms > ROUNDING * norms.amax(1, keepdim=True)
    inputs = weight * scales[..., None]
    return Rows(inputs.where(filled[..., None], torch.nan), bias)
