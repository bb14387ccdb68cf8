"""All audits together."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from gleak.metrics.audit import AuditSpec
from gleak.metrics.base import ParametersMetricSpec, metrics_of
from gleak.registry import register

if TYPE_CHECKING:
    from gleak.metrics.audit import Broadcast


@register("audit_alarms")
class AuditAlarms(ParametersMetricSpec):
    """How many of the audits alarm; one that says nothing does not."""

    unit: ClassVar[str] = "audits"

    def measure(self, broadcast: Broadcast) -> float:
        """See `ParametersMetricSpec.measure`."""
        return float(sum(audit.alarms(broadcast) for audit in audits()))


def audits() -> list[AuditSpec]:
    """Every registered audit, with its defaults."""
    return [metric for metric in metrics_of("crafting") if isinstance(metric, AuditSpec)]
