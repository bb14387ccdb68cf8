"""Cell of a capture, and the report of ``gleak import``."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gleak.captures.importing import Capture
from gleak.captures.truth import MAX_ERROR, Comparison
from gleak.clients.captured import Captured
from gleak.core.errors import SpecError
from gleak.core.spec import build_spec, format_value
from gleak.studies.cell import LEVELS, Cell, Paths

EXAMPLE = "invertgrad"


def captured_cell(name: str, dataset: str, model: str, **client: Any) -> Cell:
    """Return the cell of a capture, with an attack that supports every model.

    Args:
        name: name of the capture.
        dataset: spec of the dataset.
        model: spec of the model.
        **client: fields of `gleak.clients.captured.Captured`.

    Raises:
        SpecError: a spec or field is unknown or invalid, a path is too long, the batch size is
            missing, or weights were sent without the learning rate, by which attackers scale their
            difference.
        IncompatibleError: the specs do not fit together.
    """
    if "batch_size" not in client:
        raise SpecError("--batch-size is missing: give the number of samples of a client's update")
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
    client = cell.captured
    file = "reconstruction.h5" if capture.comparison is None else "scores.csv"
    words = ["snakemake", str(Paths(results).folder(cell) / file)]
    if config:
        words += ["--config", *(f"{key}={value}" for key, value in config.items())]
    return "\n".join(
        [
            f"{capture.folder}: {client.victims} clients of {client.batch_size} samples, "
            f"{client.content}s",
            _judgement(capture.comparison, client),
            "attack it with this command, or with another attack in the path:",
            shlex.join(words),
        ]
    )


def _judgement(comparison: Comparison | None, client: Captured) -> str:
    """Describe how well the updates agree with the true samples; a warning if they do not."""
    if comparison is None:
        return "without true samples: attacks can run, but cannot be scored"
    text = f"relative error of the updates computed from the true samples: {comparison.error:.2g}"
    if comparison.agrees:
        return text
    differing = sum(error > MAX_ERROR for error in comparison.errors)
    return (
        f"warning: {differing} of {client.victims} updates differ from those computed from the "
        f"true samples, by up to {100 * comparison.error:.0f}% of their norm: "
        f"{_cause(comparison, client)}"
    )


def _cause(comparison: Comparison, client: Captured) -> str:
    """Return the most probable reason of a difference, and what to do."""
    given = f"the learning rate {format_value(client.local_lr)}"
    if comparison.rate is not None:
        rate = format_value(comparison.rate)
        return f"they agree with --local-lr {rate} in place of {given}; import again with --replace"
    if comparison.factor < 0:
        return (
            "they have the opposite direction; check that --before and --after are not swapped, "
            "and that gradients are not differences of weights"
        )
    return (
        f"attacks assume the training as given: check batch size, steps, {given}, loss and order, "
        f"that batch normalisation was in {client.batch_norm} mode (--batch-norm), that inputs are "
        "those of the network, and that there was no momentum, weight decay, dropout or defence "
        f"(best factor: {comparison.factor:.3g})"
    )
