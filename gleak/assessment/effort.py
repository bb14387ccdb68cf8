"""The size of an assessment: the largest whose estimated time is within the budget."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from gleak.assessment.generated_study import Effort, trainings_of
from gleak.assessment.resolved import Resolved
from gleak.core.errors import SpecError
from gleak.experiments.estimate import hours, jobs
from gleak.experiments.machine import Machine
from gleak.experiments.stage_files import StudyPart, table_of
from gleak.experiments.study import load_study

STEPS = (
    Effort(5, 100),
    Effort(5, 300),
    Effort(10, 300),
    Effort(10, 1000),
    Effort(20, 1000),
    Effort(20, 2400),
    Effort(20, 4800),
    Effort(50, 4800),
    Effort(100, 4800),
)
"""Sizes, in the order of their cost: an attack that is too weak hides more than few clients do."""


def efforts(victims: int | None) -> list[Effort]:
    """Return the sizes to choose from, with a given number of victims if there is one."""
    if victims is None:
        return list(STEPS)
    return list(dict.fromkeys(Effort(victims, step.iterations) for step in STEPS))


def within_budget(resolved: Resolved, text_of: Callable[[Effort], str]) -> tuple[Effort, float]:
    """Return the largest size within the budget, and its estimated minutes on one core.

    Args:
        resolved: the deployment.
        text_of: returns the study file of a size.

    Raises:
        SpecError: the smallest size exceeds the budget; says how long it takes.
    """
    allowed = resolved.deployment.budget.minutes
    machine = Machine.configured(resolved.settings)
    found: tuple[Effort, float] | None = None
    for effort in efforts(resolved.deployment.victims):
        minutes = _minutes(text_of(effort), resolved, machine)
        if minutes > allowed:
            break
        found = effort, minutes
    if found is None:
        raise SpecError(
            f"budget.minutes: {allowed:g} is too little: the smallest assessment of this "
            f"deployment ({effort}) takes about {minutes:.2g} minutes; allow more, vary less, or "
            "compare fewer defences"
        )
    if resolved.deployment.defenses and trainings_of(resolved):
        trained = replace(found[0], trained=True)
        minutes = _minutes(text_of(trained), resolved, machine)
        found = (trained, minutes) if minutes <= allowed else found
    return found


def _minutes(text: str, resolved: Resolved, machine: Machine) -> float:
    """Return the estimated minutes of a study on one core."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "study.yaml"
        file.write_text(text, encoding="utf-8")
        study = load_study(file, [resolved.settings.scale])
    whole = StudyPart(study, resolved.settings.scale)
    tables = [table_of(whole, name) for name in study.grids]
    return 60 * hours(jobs(tables, resolved.settings), machine)
