"""The audits of one file of parameters, as text: ``gleak audit``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gleak.artifacts.dataset import Dataset
from gleak.artifacts.model import Model
from gleak.cli.catalog import align
from gleak.metrics.audits.alarms import audits
from gleak.metrics.audits.base import AuditSpec, Broadcast
from gleak.metrics.base import MetricUnavailable

ALARM = "alarm"
QUIET = "quiet"
SILENT = "says nothing"
Record = dict[str, str]


@dataclass(frozen=True)
class Report:
    """What came of all audits.

    Args:
        records: for each audit its name, verdict, worst layer, statistic, limit and evidence.
    """

    records: list[Record]

    @property
    def alarms(self) -> list[str]:
        """Names of the audits that alarm."""
        return [record["audit"] for record in self.records if record["verdict"] == ALARM]

    def __str__(self) -> str:
        found, count = self.alarms, len(self.records)
        verdict = f"{len(found)} of {count} audits alarm"
        if found:
            return f"{align(self.records)}\n\n{verdict}: {', '.join(found)}"
        return f"{align(self.records)}\n\n{verdict}"


def audit_file(parameters: Path, dataset: Path | None) -> Report:
    """Audit parameters by every registered audit, with its defaults.

    Args:
        parameters: ``parameters.h5`` or ``model.h5``.
        dataset: ``dataset.h5`` whose train split a client draws from; None: audits that need
            samples say nothing, and torch is not imported.

    Raises:
        ArtifactError: a file is not what it should be.
        IncompatibleError: the dataset is not the model's.
    """
    samples = None if dataset is None else Dataset.read(dataset)
    broadcast = Broadcast(Model.read(parameters), samples)
    return Report([_record(audit, broadcast) for audit in audits()])


def _record(audit: AuditSpec, broadcast: Broadcast) -> Record:
    try:
        worst = audit.worst(broadcast)
    except MetricUnavailable as reason:
        silent = dict.fromkeys(("worst layer", "statistic"), "")
        verdict, measured, evidence = SILENT, silent, str(reason)
    else:
        verdict = ALARM if audit.alarms(broadcast) else QUIET
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
