"""Table of all audits of one file of parameters, for ``gleak audit``."""

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
PASSED = "no alarm"
UNAVAILABLE = "not available"
Record = dict[str, str]


@dataclass(frozen=True)
class Report:
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
        return f"{align(self.records)}\n\n{verdict}"


def audit_file(parameters: Path, dataset: Path | None) -> Report:
    """Run every registered audit with its default parameters.

    Args:
        parameters: ``parameters.h5`` or ``model.h5``.
        dataset: ``dataset.h5``, from whose train split a client draws; None: audits that need
            samples are not available, and torch is not imported.

    Raises:
        ArtifactError: a file is invalid.
        IncompatibleError: the dataset does not fit the model.
    """
    samples = None if dataset is None else Dataset.read(dataset)
    broadcast = Broadcast(Model.read(parameters), samples)
    return Report([_record(audit, broadcast) for audit in audits()])


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
