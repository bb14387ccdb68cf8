"""Batches of which a few samples make the whole gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.metrics.audits.base import AuditSpec, Finding
from gleak.metrics.base import MetricUnavailable

if TYPE_CHECKING:
    from gleak.metrics.audits.base import Broadcast

VANISHED = 1e-3
FEWEST_SAMPLES = 8


@register("audit_dominance")
class AuditDominance(AuditSpec):
    """How many times fewer samples than a batch has make the sum of its gradients, at worst.

    With g the norms of the samples' gradients of one parameter, N sum(g^2) / sum(g)^2: 1 if all are
    equal, N if one sample is the whole sum. A sample's gradient is that of cross-entropy per unit
    of its gradient at the logits, so that what a trained model has learnt well does not count as
    suppressed. Networks that training left at chance pass some samples far more than others,
    whatever the loss; so the same is computed in units of the gradient of a change of the logits
    that all samples share, and the less of the two counts. Samples of which the network passes next
    to nothing are left out. The client draws the batch from its train split.

    A server that lets few samples pass, whatever their labels, is not found by this.
    """

    source = "MKOR section 2: whether the sum gradient is dominated by a few samples"

    limit: float = parameter(
        8.0, "above which it alarms", source="ours: between honest and fished", gt=0
    )
    samples: int = parameter(64, "in the batch", source="ours", ge=FEWEST_SAMPLES)

    def examine(self, broadcast: Broadcast) -> list[Finding]:
        """See `AuditSpec.examine`.

        Raises:
            MetricUnavailable: the client brings no samples, or too few.
        """
        data = broadcast.samples
        if data is None or len(data.labels("train")) < FEWEST_SAMPLES:
            raise MetricUnavailable(
                f"it needs {FEWEST_SAMPLES} of the client's own samples or more; give --data"
            )
        from gleak.metrics.audits.client_gradients import gradient_norms

        norms = gradient_norms(broadcast.model, data, self.samples, broadcast.seed)
        told = {name: _passing(*values) for name, values in norms.items()}
        enough = {name: values for name, values in told.items() if len(values[0])}
        if not enough:
            raise MetricUnavailable(f"fewer than {FEWEST_SAMPLES} samples have a gradient")
        return [_examine(name, *values) for name, values in enough.items()]


def _passing(losses: np.ndarray, changes: np.ndarray) -> np.ndarray:
    """The norms of the samples that pass, Shape (2, N); none where they are few or zero."""
    largest = changes[np.isfinite(changes)].max(initial=0)
    passing = np.stack([losses, changes])[:, ~(changes <= VANISHED * largest)]
    return passing if passing.shape[1] >= FEWEST_SAMPLES and passing[0].any() else passing[:, :0]


def _examine(name: str, losses: np.ndarray, changes: np.ndarray) -> Finding:
    """Of one parameter; Shape of the norms (N)."""
    vanished = int(np.count_nonzero(losses < VANISHED * losses.max()))
    text = (
        f"one of {len(losses)} samples is {losses.max() / losses.sum():.0%} of the sum, {vanished} "
        "are below a thousandth of it"
    )
    statistics = [_dominance(losses), _dominance(losses / changes)]
    return Finding(name, float(np.min(statistics)), text)


def _dominance(norms: np.ndarray) -> float:
    return float(len(norms) * (norms**2).sum() / norms.sum() ** 2)
