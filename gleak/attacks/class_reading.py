"""Reading each class's features off the first dense layer of a crafted network (MKOR Eq. 9)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

FEWEST = 0.5
"""Of so many samples, as far as the bias tells, a class is said to be there; and so much of
what the softmax gives to a class must be left for it to show the batch."""


@dataclass(frozen=True)
class ClassFeatures:
    """What one update says of each class.

    Args:
        means: Shape (classes, E), mean of the features of its samples; of no meaning where it has
            none.
        counts: Shape (classes), how many samples it has, whole numbers; 0 also where it cannot be
            told.
    """

    means: Tensor
    counts: Tensor


def read_classes(
    weight: Tensor, bias: Tensor, secret: Mapping[str, np.ndarray], batch_size: int, loss: str
) -> ClassFeatures:
    """Separate the classes in the gradient of the mean loss over one batch.

    A class's logit has the derivative p - 1 for its own samples and p for others, where p is its
    softmax; with ``nll_raw``, -1 and 0. A path leads it back to rows of the first dense layer: so
    they hold gain (p S - Z) and their biases gain (p K - c), where S sums the features of the
    batch, Z those of the class, of which there are c. With ``nll_raw`` p is 0 and Z / c their ratio
    (MKOR Eq. 9). With ``cross_entropy`` (ours) p is known from images the server made up, and p S
    is taken off: S / K is read at the class that shows it most, whose bias gradient is the largest:
    the sink, or one that no sample has. It is the mean of all samples but those of that class,
    which is given up. Without either nothing is told. Clients that drop neurons drop whole paths
    for a sample: of a class's paths the one that shows most samples counts them.

    Args:
        weight: Shape (neurons, E), of the first dense layer.
        bias: Shape (neurons).
        secret: of the crafting `gleak.crafting.mkor.MKOR`.
        batch_size: K.
        loss: "cross_entropy" or "nll_raw".
    """
    sums = batch_size * _along_paths(weight, secret).mean(0)
    each = batch_size * _along_paths(bias[:, None], secret).flatten(1)
    totals = each.mean(0)
    if loss == "cross_entropy":
        chances = torch.from_numpy(secret["chances"]).to(sums)
        shown = totals.argmax()
        if totals[shown] < FEWEST * batch_size * chances[shown]:
            return ClassFeatures(sums, torch.zeros_like(totals, dtype=torch.long))
        mean = sums[shown] / totals[shown]
        sums = sums - batch_size * chances[:, None] * mean
        each, totals = each - batch_size * chances, totals - batch_size * chances
        each[:, shown] = totals[shown] = 0
    means = sums / torch.where(totals == 0, 1, totals)[:, None]
    kept = float(secret["kept"][0])
    counts = -totals if kept == 1 else -each.amin(0) * kept
    return ClassFeatures(means, whole_counts(counts, batch_size))


def _along_paths(gradient: Tensor, secret: Mapping[str, np.ndarray]) -> Tensor:
    """Derivative by each class's logit times what went in; Shape (paths, classes, E)."""
    rows = torch.from_numpy(secret["rows"])
    gains = torch.from_numpy(secret["gains"]).to(gradient)
    width = 2 if secret["pairs"][0] else 1
    paths = [
        sum(gradient[row] / gain[:, None] for row, gain in zip(*path, strict=True))
        for path in zip(rows.T.split(width), gains.T.split(width), strict=True)
    ]
    return torch.stack(paths)


def whole_counts(counts: Tensor, batch_size: int) -> Tensor:
    """Counts rounded to whole numbers, the smallest parts given up if they exceed the batch."""
    rounded = torch.where(counts >= FEWEST, counts.round().clamp(1, batch_size), 0).long()
    while (excess := int(rounded.sum()) - batch_size) > 0:
        weakest = torch.where(rounded > 0, counts - rounded, torch.inf).argsort()[:excess]
        rounded[weakest] -= (rounded[weakest] > 0).long()
    return rounded
