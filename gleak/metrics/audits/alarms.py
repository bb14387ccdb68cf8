"""Number of alarms, and the verdicts of all audits on one broadcast."""

from __future__ import annotations

import json
from dataclasses import dataclass

from tabulate import tabulate

from gleak.core.registry import register
from gleak.metrics.audits.base import AuditSpec, Broadcast, ParametersMetricSpec
from gleak.metrics.base import MetricUnavailable, metrics_of


@register("audit_alarms")
class AuditAlarms(ParametersMetricSpec):
    """Number of audits that raise an alarm; audits that do not apply raise none."""

    unit = "audits"

    def measure(self, broadcast: Broadcast) -> float:
        return float(sum(audit.alarms(broadcast) for audit in audits()))


def audits() -> list[AuditSpec]:
    """Return all registered audits with their defaults."""
    return [metric for metric in metrics_of("crafting") if isinstance(metric, AuditSpec)]


ALARM = "alarm"


@dataclass(frozen=True)
class AuditReport:
    """Name, verdict, worst layer, statistic, limit, evidence and meaning of each audit."""

    records: list[dict[str, str]]

    @property
    def alarms(self) -> list[str]:
        """Names of the audits that raise an alarm."""
        return [record["audit"] for record in self.records if record["verdict"] == ALARM]

    def __str__(self) -> str:
        names = f": {', '.join(self.alarms)}" if self.alarms else ""
        verdict = f"{len(self.alarms)} of {len(self.records)} audits raise an alarm{names}"
        headings = [key for key in self.records[0] if any(record[key] for record in self.records)]
        headings.remove("meaning")
        rows = [[record[key] for key in headings] for record in self.records]
        table = tabulate(rows, headings, tablefmt="simple", disable_numparse=True)
        return "\n\n".join([table, *self.explanations(), verdict])

    def to_json(self) -> str:
        """Return the alarms and all records as JSON."""
        return json.dumps({"alarms": self.alarms, "audits": self.records}, indent=2)

    def explanations(self) -> list[str]:
        """Return one sentence for each alarm, which names the layer and says what it means."""
        return [
            f"{record['audit']}{layer}: {record['meaning']}"
            for record in self.records
            if record["verdict"] == ALARM
            for layer in [f" ({record['worst layer']})" if record["worst layer"] else ""]
        ]


def run_audits(broadcast: Broadcast) -> AuditReport:
    """Run every registered audit with its default parameters."""
    records = []
    for audit in audits():
        layer, statistic = "", ""
        try:
            worst = audit.worst(broadcast)
        except MetricUnavailable as reason:
            verdict, evidence = "not available", str(reason)
        else:
            verdict = ALARM if audit.alarms(broadcast) else "no alarm"
            layer, statistic, evidence = worst.layer, f"{worst.statistic:.3g}", worst.text
        records.append(
            {
                "audit": audit.name,
                "verdict": verdict,
                "worst layer": layer,
                "statistic": statistic,
                "limit": f"{audit.limit:g}",
                "evidence": evidence,
                "meaning": audit.meaning,
            }
        )
    return AuditReport(records)
