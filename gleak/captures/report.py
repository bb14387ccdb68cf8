"""Cell of a capture, and the report of ``gleak import``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gleak.captures.importing import Capture
from gleak.clients.captured import Captured
from gleak.core.errors import SpecError
from gleak.core.spec import build_spec
from gleak.experiments.cell import LEVELS, Cell, Paths

EXAMPLE = "invertgrad"
MAX_DISAGREEMENT = 0.05


def captured_cell(name: str, dataset: str, model: str, **client: Any) -> Cell:
    """Return the cell of a capture, with an attack that supports every model.

    Args:
        name: name of the capture.
        dataset: spec of the dataset.
        model: spec of the model.
        **client: fields of `gleak.clients.captured.Captured`.

    Raises:
        SpecError: a spec or field is unknown or invalid, a path is too long, or weights were sent
            without the learning rate, by which attackers scale their difference.
        IncompatibleError: the specs do not fit together.
    """
    if client["sends"] == "weights" and "local_lr" not in client:
        raise SpecError("--local-lr is missing: give the learning rate of the clients")
    clients = build_spec(Captured, {**client, "capture": name})
    training = f"captured+capture={name}"
    specs = (dataset, model, training, "honest", str(clients), "none", EXAMPLE)
    return Cell.parse(dict(zip(LEVELS, specs, strict=True)))


def describe_capture(cell: Cell, capture: Capture, results: Path, config: Mapping[str, Any]) -> str:
    """Describe an imported capture, with the command that attacks it.

    Args:
        cell: cell with an attack.
        capture: imported capture.
        results: results folder.
        config: keys of the configuration with other values.
    """
    client = cell.client
    file = "reconstruction.h5" if capture.disagreement is None else "scores.csv"
    settings = "".join(f" --config {key}={value}" for key, value in config.items())
    return "\n".join(
        [
            f"{capture.folder}: {client.victims} clients of {client.batch_size} samples, "
            f"{client.content}s",
            _judgement(capture.disagreement),
            "attack it with this command, or with another attack in the path:",
            f"snakemake {Paths(results).folder(cell) / file}{settings}",
        ]
    )


def _judgement(disagreement: float | None) -> str:
    """Describe how well the updates agree with the true samples."""
    if disagreement is None:
        return "without true samples: attacks can run, but cannot be scored"
    text = f"relative error of the updates computed from the true samples: {disagreement:.2g}"
    if disagreement < MAX_DISAGREEMENT:
        return text
    return (
        f"{text}; attacks assume the training as given: check batch size, steps, learning rate, "
        "loss and order, that inputs are those of the network, and that there was no momentum, "
        "weight decay, dropout, batch statistics or defence"
    )
