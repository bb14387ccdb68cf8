"""Samples in the bins of a planted layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from gleak.attacks.isolated_rows import ROUNDING, Rows, SampleRowsAttack
from gleak.attacks.observation import Observation
from gleak.core.lazy import torch
from gleak.core.registry import register


@register("imprint")
class ImprintAttack(SampleRowsAttack):
    """Robbing the Fed: samples that are alone in a bin of a planted layer, in closed form.

    The parameters are crafted by `imprint`. The gradient of the samples between two edges is the
    difference of neighbouring rows if bins are cumulative, and that of the row itself if they are
    sparse. The ratio of the weights' gradient and the bias's is the sample. Its brightness must be
    in the bin: where rounding hides the bias's gradient, as in differences of weights, the sample
    is scaled so that it is.

    Sums over clients are those of one larger batch, so `secure_aggregation` changes nothing but the
    number of samples. For clients that take several steps, plant a layer with sparse bins.
    """

    source = "Fowl et al. 2022 (Robbing the Fed)"
    crafting: ClassVar[str | None] = "imprint"

    def rows(self, observation: Observation, weight: torch.Tensor, bias: torch.Tensor) -> Rows:
        return in_bins(weight, bias, observation.secret)


def in_bins(weight: torch.Tensor, bias: torch.Tensor, secret: Mapping[str, np.ndarray]) -> Rows:
    """Read the candidates off the gradients of a layer with bins.

    Args:
        weight: Shape (V, K, F).
        bias: Shape (V, K).
        secret: of `gleak.crafting.imprint.ImprintCrafting.set_bins`.
    """
    if not secret["sparse"][0]:
        last = torch.zeros_like(bias[:, :1])
        weight = weight - torch.cat([weight[:, 1:], last[..., None].expand_as(weight[:, :1])], 1)
        bias = bias - torch.cat([bias[:, 1:], last], 1)
    edges = torch.from_numpy(secret["edges"]).to(weight)
    measured = weight.mean(2)
    middles = (edges[:-1] + edges[1:]) / 2
    brightness = (measured / bias).nan_to_num(torch.nan, torch.nan, torch.nan)
    brightness = torch.where(brightness.isnan(), middles, brightness)
    brightness = brightness.maximum(edges[:-1]).minimum(edges[1:])
    norms = weight.norm(dim=2)
    filled = norms > ROUNDING * norms.amax(1, keepdim=True)
    inputs = weight * (brightness / measured)[..., None]
    return Rows(inputs.where(filled[..., None], torch.nan), bias)
