"""All audits together."""

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
    """How many of the audits alarm; one that says nothing does not."""

    unit: ClassVar[str] = "audits"

    @override
    def measure(self, broadcast: Broadcast) -> float:
        return float(sum(audit.alarms(broadcast) for audit in audits()))


def audits() -> list[AuditSpec]:
    """Every registered audit, with its defaults."""
    return [metric for metric in metrics_of("crafting") if isinstance(metric, AuditSpec)]
