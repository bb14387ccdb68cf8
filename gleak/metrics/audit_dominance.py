"""Batches of which a few samples make the whole gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gleak.metrics.audit import AuditSpec, Finding
from gleak.metrics.base import MetricUnavailable
from gleak.registry import register
from gleak.spec import knob

if TYPE_CHECKING:
    from gleak.metrics.audit import Broadcast

VANISHED = 1e-3
FEWEST_SAMPLES = 8


@register("audit_dominance")
class AuditDominance(AuditSpec):
    """How many times fewer samples than a batch has make the sum of its gradients, at worst.

    With g the norms of the samples' gradients of one parameter, N sum(g^2) / sum(g)^2: 1 if all are
    equal, N if one sample is the whole sum. It is taken in units of the largest of all later
    parameters: in networks that are deep, or were left at chance, it grows little by little from
    the last layer to the first, while a server that suppresses samples does so at one layer. A
    sample's gradient is that of cross-entropy per unit of its gradient at the logits, so that what
    a trained model has learnt well does not count as suppressed. Samples that the network hardly
    passes, whatever the loss, are left out: where training failed most are. The client draws the
    batch from its train split.

    Not found are a server that suppresses samples by less than the limit at each of several layers,
    and one that lets few samples pass at all.
    """

    source = "MKOR section 2: whether the sum gradient is dominated by a few samples"

    limit: float = knob(
        8.0, "above which it alarms", source="ours: between honest and fished", gt=0
    )
    samples: int = knob(64, "in the batch", source="ours", ge=FEWEST_SAMPLES)

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
        from gleak.metrics.sample_gradients import gradient_norms

        norms = gradient_norms(broadcast.model, data, self.samples, broadcast.seed)
        told = {name: _passing(*values) for name, values in norms.items()}
        enough = {name: values for name, values in told.items() if len(values) >= FEWEST_SAMPLES}
        if not enough:
            raise MetricUnavailable(f"fewer than {FEWEST_SAMPLES} samples have a gradient")
        return _examine(enough)


def _passing(losses: np.ndarray, changes: np.ndarray) -> np.ndarray:
    """Norms of the loss's gradients of the samples that pass; none where all of them vanish."""
    largest = changes[np.isfinite(changes)].max(initial=0)
    passing = losses[~(changes <= VANISHED * largest)]
    return passing if passing.any() else passing[:0]


def _examine(norms: dict[str, np.ndarray]) -> list[Finding]:
    """Of the parameters in the order of their layers; Shape of the norms (N)."""
    findings, later = [], 1.0
    for name, values in reversed(norms.items()):
        dominance = float(len(values) * (values**2).sum() / values.sum() ** 2)
        findings.append(Finding(name, dominance / later, _text(values)))
        later = float(np.maximum(later, dominance))
    return findings[::-1]


def _text(norms: np.ndarray) -> str:
    shares = norms / norms.sum()
    vanished = int(np.count_nonzero(norms < VANISHED * norms.max()))
    return (
        f"one of {len(norms)} samples is {shares.max():.0%} of the sum, {vanished} are below a "
        "thousandth of it"
    )
