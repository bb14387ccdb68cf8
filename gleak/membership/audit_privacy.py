"""Workflow stage that runs the trials of an audit, and writes ``audit.h5``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from gleak.artifacts.dataset import Dataset
from gleak.artifacts.model import Model
from gleak.clients.base import ClientSpec
from gleak.defenses.base import DefenseSpec
from gleak.membership.canaries import CanarySpec, Subject
from gleak.models.broadcast import load_network
from gleak.runtime.device import choose_device


def audit_privacy(
    audit: CanarySpec,
    client: ClientSpec,
    defense: DefenseSpec,
    dataset_path: Path | None,
    parameters_path: Path | None,
    output: Path,
    *,
    spec: str,
    seed: int,
    device: str = "auto",
) -> None:
    """Run the trials of an audit and write them.

    The paths are those of ``dataset.h5``, and of ``model.h5`` or ``parameters.h5`` as broadcast, if
    canaries are samples; the spec is the canonical path of the cell, written into the file.

    Raises:
        ArtifactError: a bad file.
        IncompatibleError: the clients cannot be audited.
    """
    subject = Subject(client, defense)
    if dataset_path and parameters_path:
        network = load_network(Model.read(parameters_path), str(parameters_path))
        subject = Subject(
            client, defense, Dataset.read(dataset_path), network.to(choose_device(device))
        )
    trials = audit.run(subject, seed)
    replace(trials, spec=spec, seed=seed).write(output)
