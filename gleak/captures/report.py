"""What ``gleak import`` says: which cell a capture is, and what to ask the workflow for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gleak.captures.intake import Capture
from gleak.clients.captured import Captured
from gleak.core.errors import SpecError
from gleak.core.spec import build_spec
from gleak.experiments.cell import LEVELS, Cell, Paths

EXAMPLE = "invertgrad"
TOO_FAR = 0.05


def captured_cell(name: str, dataset: str, model: str, **client: Any) -> Cell:
    """The cell of a capture, with an attack that serves every model.

    Args:
        name: of the capture.
        dataset: its spec.
        model: its spec.
        **client: fields of `gleak.clients.captured.Captured`.

    Raises:
        SpecError: an unknown or bad spec or field, names too long for a path, or weights that were
            sent without the learning rate, by which attackers scale their difference.
        IncompatibleError: specs that do not fit together.
    """
    if client["sends"] == "weights" and "local_lr" not in client:
        raise SpecError("--local-lr is missing: say at which learning rate the clients trained")
    clients = build_spec(Captured, {**client, "capture": name})
    training = f"captured+capture={name}"
    specs = (dataset, model, training, "honest", str(clients), "none", EXAMPLE)
    return Cell.parse(dict(zip(LEVELS, specs, strict=True)))


def describe_capture(cell: Cell, capture: Capture, results: Path, config: Mapping[str, Any]) -> str:
    """What was taken in, and the command that attacks it.

    Args:
        cell: with an attack.
        capture: where it is.
        results: the results folder.
        config: keys of the configuration that were given otherwise.
    """
    client = cell.client
    file = "reconstruction.h5" if capture.disagreement is None else "scores.csv"
    settings = "".join(f" --config {key}={value}" for key, value in config.items())
    return "\n".join(
        [
            f"{capture.folder}: {client.victims} clients of {client.batch_size} samples, "
            f"{client.content}s",
            _judgement(capture.disagreement),
            "attack it, with this attack or any other:",
            f"snakemake {Paths(results).folder(cell) / file}{settings}",
        ]
    )


def _judgement(disagreement: float | None) -> str:
    """What the truth says of the updates."""
    if disagreement is None:
        return "without truth, so it can be attacked but not scored"
    found = f"trained as was said, the truth gives these updates but for {disagreement:.2g} of them"
    if disagreement < TOO_FAR:
        return found
    return (
        f"{found}: attacks take the clients for what was said; see whether batch size, steps, "
        "learning rate, loss and order are right, inputs are what the network was given, and no "
        "momentum, decay, dropout, batch statistics or defence was there"
    )
