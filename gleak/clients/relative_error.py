"""How far one update is from another, relative to its length."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor


def relative_error(found: Mapping[str, Tensor], true: Mapping[str, Tensor]) -> float:
    """Length of the difference over that of the true values; 0 where both are zero.

    Args:
        found: by parameter, Shape (*shape).
        true: likewise.
    """
    error = sum(float((found[name] - value).square().sum()) for name, value in true.items())
    length = sum(float(value.square().sum()) for value in true.values())
    return math.sqrt(error / max(length, torch.finfo(torch.float32).tiny))
