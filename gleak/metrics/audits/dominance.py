"""Audit of batches whose gradient is dominated by a few samples."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.metrics.audits.base import AuditSpec, Broadcast, Finding
from gleak.metrics.audits.client_gradients import gradient_norms
from gleak.metrics.base import MetricUnavailable

VANISHED = 1e-3
FEWEST_SAMPLES = 8


@register("audit_dominance")
class AuditDominance(AuditSpec):
    """Dominance of the sum of gradients by a few samples, the largest over all parameters.

    With g the norms of the samples' gradients of one parameter, N sum(g^2) / sum(g)^2: 1 if all are
    equal, N if one sample is the whole sum. A sample's gradient is that of cross-entropy per unit
    of its gradient at the logits, so that samples a trained model has learnt well do not count as
    suppressed. Networks that training left at chance pass some samples far more than others, for
    any loss; so the statistic is also computed in units of the gradient of a change of the logits
    that all samples share, and the smaller of the two counts. Samples of which the network passes
    almost nothing are left out. The client draws the batch from its train split.

    A server that lets few samples pass, independently of their labels, is not found by this audit.
    """

    source = "MKOR section 2: whether the sum gradient is dominated by a few samples"
    meaning: ClassVar[str] = (
        "A few of your samples make up nearly the whole update, so that it shows them and not "
        "an average of your data."
    )

    limit: float = parameter(
        8.0, "value above which an alarm is raised", source="ours: between honest and fished", gt=0
    )
    samples: int = parameter(64, "number of samples in the batch", source="ours", ge=FEWEST_SAMPLES)

    def examine(self, broadcast: Broadcast) -> list[Finding]:
        data = broadcast.own_samples(FEWEST_SAMPLES)
        norms = gradient_norms(broadcast.network(), data, self.samples, broadcast.seed)
        findings = []
        for name, (losses, changes) in norms.items():
            largest = changes[np.isfinite(changes)].max(initial=0)
            passing = ~(changes <= VANISHED * largest)
            if np.count_nonzero(passing) >= FEWEST_SAMPLES and losses[passing].any():
                findings.append(_examine(name, losses[passing], changes[passing]))
        if not findings:
            raise MetricUnavailable(f"fewer than {FEWEST_SAMPLES} samples have a gradient")
        return findings


def _examine(name: str, losses: np.ndarray, changes: np.ndarray) -> Finding:
    """Compute the statistic of one parameter; Shape of the norms (N)."""
    vanished = int(np.count_nonzero(losses < VANISHED * losses.max()))
    text = (
        f"one of {len(losses)} samples is {losses.max() / losses.sum():.0%} of the sum, {vanished} "
        "are below a thousandth of it"
    )
    statistics = [
        len(norms) * (norms**2).sum() / norms.sum() ** 2 for norms in (losses, losses / changes)
    ]
    return Finding(name, float(np.min(statistics)), text)
