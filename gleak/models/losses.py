"""Client losses on soft labels, so that labels can be optimised too."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional


def sample_losses(loss: str, logits: Tensor, targets: Tensor) -> Tensor:
    """Loss of every sample, not yet averaged.

    Args:
        loss: "cross_entropy", or "nll_raw": minus the raw logit of the label (MKOR's reference).
        logits: Shape (M, classes).
        targets: Shape (M, classes), rows that sum to one; one-hot for hard labels.

    Returns:
        Shape (M).
    """
    scores = functional.log_softmax(logits, dim=1) if loss == "cross_entropy" else logits
    return -(targets * scores).sum(1)
