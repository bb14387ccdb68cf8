"""Total number of alarms."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from typing_extensions import override

from gleak.core.registry import register
from gleak.metrics.audits.base import AuditSpec
from gleak.metrics.base import ParametersMetricSpec, metrics_of

if TYPE_CHECKING:
    from gleak.metrics.audits.base import Broadcast


@register("audit_alarms")
class AuditAlarms(ParametersMetricSpec):
    """Number of audits that raise an alarm; audits that do not apply raise none."""

    unit: ClassVar[str] = "audits"

    @override
    def measure(self, broadcast: Broadcast) -> float:
        return float(sum(audit.alarms(broadcast) for audit in audits()))


def audits() -> list[AuditSpec]:
    """Return all registered audits with their defaults."""
    return [metric for metric in metrics_of("crafting") if isinstance(metric, AuditSpec)]
