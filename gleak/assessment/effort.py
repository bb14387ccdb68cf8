"""The size of an assessment: that of a scale, or the largest within a time by the estimates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from gleak.assessment.deployment import Deployment, Scale
from gleak.assessment.generated_study import Effort, trainings_of
from gleak.assessment.resolved import Resolved
from gleak.core.errors import SpecError
from gleak.studies.estimate import hours, jobs
from gleak.studies.machine import Machine
from gleak.studies.stage_files import StudyPart, table_of
from gleak.studies.study import load_study

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
SCALES: dict[Scale, Effort] = {
    "quick": Effort(10, 1000),
    "small": Effort(20, 4800),
}


def efforts(deployment: Deployment) -> list[Effort]:
    """Return the sizes to choose from."""
    return list(dict.fromkeys(_given(step, deployment) for step in STEPS))


def _given(effort: Effort, deployment: Deployment) -> Effort:
    """Return a size with the clients and iterations that a deployment names."""
    return replace(
        effort,
        victims=deployment.victims or effort.victims,
        iterations=deployment.iterations or effort.iterations,
    )


def choose_effort(resolved: Resolved, text_of: Callable[[Effort], str]) -> tuple[Effort, float]:
    """Return the size of an assessment, and its estimated minutes on one core.

    Args:
        resolved: the deployment.
        text_of: returns the study file of a size.

    Raises:
        SpecError: the smallest size exceeds the minutes of the budget; says how long it takes.
    """
    machine = Machine.configured(resolved.settings)

    def minutes(effort: Effort) -> float:
        return _minutes(text_of(effort), resolved, machine)

    budget = resolved.deployment.budget
    if budget.scale is not None:
        effort = of_scale(budget.scale, resolved)
        return effort, minutes(effort)
    assert budget.minutes is not None
    return _within(budget.minutes, resolved, minutes)


def of_scale(scale: Scale, resolved: Resolved) -> Effort:
    """Return the size of a scale, with what the deployment names of it."""
    return replace(_given(SCALES[scale], resolved.deployment), trained=_trains(resolved))


def _within(
    allowed: float, resolved: Resolved, minutes: Callable[[Effort], float]
) -> tuple[Effort, float]:
    """Return the largest size within the allowed minutes, and its own."""
    found: tuple[Effort, float] | None = None
    for effort in efforts(resolved.deployment):
        estimated = minutes(effort)
        if estimated > allowed:
            break
        found = effort, estimated
    if found is None:
        raise SpecError(
            f"budget.minutes: {allowed:g} is too little: the smallest assessment of this "
            f"deployment ({effort}) takes about {estimated:.2g} minutes; allow more, vary less, or "
            "compare fewer defences"
        )
    if not _trains(resolved):
        return found
    trained = replace(found[0], trained=True)
    estimated = minutes(trained)
    return (trained, estimated) if estimated <= allowed else found


def _trains(resolved: Resolved) -> bool:
    """Return True if there are trainings to repeat under each defence."""
    return bool(resolved.deployment.defenses and trainings_of(resolved))


def _minutes(text: str, resolved: Resolved, machine: Machine) -> float:
    """Return the estimated minutes of a study on one core."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "study.yaml"
        file.write_text(text, encoding="utf-8")
        study = load_study(file, [resolved.settings.scale])
    whole = StudyPart(study, resolved.settings.scale)
    tables = [table_of(whole, name) for name in study.grids]
    return 60 * hours(jobs(tables, resolved.settings), machine)
