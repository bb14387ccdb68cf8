"""Batches of light jobs, which a cluster runs as one job.

A job on a cluster node costs several CPU seconds before its work, and waits in a queue. Jobs whose
estimated work takes at most `LIGHT_SECONDS` on one core therefore travel in batches; all others
travel alone. The jobs of a batch depend on batches that stand before it in `BATCHES` and on heavy
jobs, and no heavy job depends on a batch and is needed by it again, so no batch waits for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gleak.studies.cell import Cell
from gleak.studies.estimate import CALL_SECONDS, CALLS, COSTS, RATE, no_cost

LIGHT_SECONDS = 60.0
LIGHT_MINUTES = 10
"""Time limit of a light job: ten times the longest estimate, for slow nodes and rough estimates."""
UNMIXING_SECONDS = 0.1
"""CPU seconds a sample of attacks without evaluations; see docs/results/speed.md (batches of 8 to
128 images)."""


def batch_of(rule: str, subject: Any) -> str | None:
    """Return the name of a job's batch; None if the job travels alone.

    Args:
        rule: name of the stage.
        subject: what the job is about; see `gleak.studies.stages.Stage`.
    """
    batch = _BATCH_OF.get(rule)
    if batch is None or _SECONDS.get(rule, _estimated(rule))(subject) > LIGHT_SECONDS:
        return None
    return batch


def _estimated(rule: str) -> Callable[[Any], float]:
    """Return the function for the estimated time, in seconds, of a job's work on one core."""
    work, calls = COSTS.get(rule, (no_cost, no_cost))[0], CALLS.get(rule, no_cost)
    return lambda subject: calls(subject) * CALL_SECONDS + work(subject) / RATE


def _seconds_of_preparation(cell: Cell) -> float:
    """Return zero for bundled datasets; the size of others is only known from their files."""
    return float("inf") if cell.dataset.reads_data_dir else 0.0


def _seconds_of_attack(cell: Cell) -> float:
    """Return the time of an attack; its scoring is light if and only if the attack is."""
    if cell.attack.evaluations:
        return _estimated("attack")(cell)
    return UNMIXING_SECONDS * cell.client.victims * cell.client.batch_size


BATCHES: Mapping[str, tuple[str, ...]] = {
    "data": ("prepare_dataset", "train_model"),
    "clients": ("craft_parameters", "simulate_clients", "score_parameters"),
    "cells": ("attack", "score", "score_truth"),
}
"""Name -> stages whose light jobs a batch may contain, in the order in which batches run."""

_BATCH_OF = {rule: batch for batch, rules in BATCHES.items() for rule in rules}
_SECONDS: Mapping[str, Callable[[Cell], float]] = {
    "prepare_dataset": _seconds_of_preparation,
    "attack": _seconds_of_attack,
    "score": _seconds_of_attack,
}
