"""Audits of a file of parameters, for ``gleak audit``."""

from __future__ import annotations

from pathlib import Path

from gleak.artifacts.dataset import Dataset
from gleak.artifacts.model import Model
from gleak.metrics.audits.alarms import AuditReport, run_audits
from gleak.metrics.audits.base import Broadcast


def audit_file(parameters: Path, dataset: Path | None) -> AuditReport:
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
    return run_audits(Broadcast(Model.read(parameters), samples))
