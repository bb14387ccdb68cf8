"""Number of alarms, and the verdicts of all audits on one broadcast."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tabulate import tabulate
from typing_extensions import override

from gleak.core.registry import register
from gleak.metrics.audits.base import AuditSpec, Broadcast, ParametersMetricSpec
from gleak.metrics.base import MetricUnavailable, metrics_of


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


ALARM = "alarm"
PASSED = "no alarm"
UNAVAILABLE = "not available"
Record = dict[str, str]


@dataclass(frozen=True)
class AuditReport:
    """Results of all audits.

    Args:
        records: name, verdict, worst layer, statistic, limit and evidence of each audit.
    """

    records: list[Record]

    @property
    def alarms(self) -> list[str]:
        """Names of the audits that raise an alarm."""
        return [record["audit"] for record in self.records if record["verdict"] == ALARM]

    def __str__(self) -> str:
        names = f": {', '.join(self.alarms)}" if self.alarms else ""
        verdict = f"{len(self.alarms)} of {len(self.records)} audits raise an alarm{names}"
        return f"{self._table()}\n\n{verdict}"

    def _table(self) -> str:
        """Return a table of the columns that have an entry."""
        headings = [key for key in self.records[0] if any(record[key] for record in self.records)]
        rows = [[record[key] for key in headings] for record in self.records]
        return tabulate(rows, headings, tablefmt="simple", disable_numparse=True)


def run_audits(broadcast: Broadcast) -> AuditReport:
    """Run every registered audit with its default parameters."""
    return AuditReport([_record(audit, broadcast) for audit in audits()])


def _record(audit: AuditSpec, broadcast: Broadcast) -> Record:
    try:
        worst = audit.worst(broadcast)
    except MetricUnavailable as reason:
        measured = dict.fromkeys(("worst layer", "statistic"), "")
        verdict, evidence = UNAVAILABLE, str(reason)
    else:
        verdict = ALARM if audit.alarms(broadcast) else PASSED
        measured = {"worst layer": worst.layer, "statistic": f"{worst.statistic:.3g}"}
        evidence = worst.text
    limit = f"{audit.limit:g}"
    return {
        "audit": audit.name,
        "verdict": verdict,
        **measured,
        "limit": limit,
        "evidence": evidence,
    }
