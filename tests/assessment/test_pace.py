from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gleak.assessment.generated_study import (
    PILOTS,
    Effort,
    affords,
    generate_study,
    pilot_sizes,
    pilots,
    study_of_size,
)
from gleak.assessment.pace import Pace, attacked, read_pace
from gleak.assessment.resolved import Resolved
from gleak.core.registry import parse
from gleak.core.settings import Settings
from gleak.studies.cell import Cell
from gleak.studies.estimate import jobs
from gleak.studies.machine import START_SECONDS, Machine
from gleak.studies.stage_files import StudyPart, reconstruction_of, table_of
from gleak.studies.stages import path_of

Resolve = Callable[..., Resolved]
VARIED = {"client": {"batch_size": 4}, "vary": {"batch_size": [1]}}
RESULTS = Settings(studies=[]).results_dir


def run(resolved: Resolved, folder: Path, seconds: Callable[[Cell], float]) -> Pace:
    """Leave what the pilots leave, as if each cell had taken so long."""
    studies = pilots("mine", resolved)
    for study in studies:
        for cell in attacked(study, "quick"):
            file = path_of(reconstruction_of(cell), folder)
            file.parent.mkdir(parents=True)
            file.touch()
            (file.parent / "provenance.json").write_text(json.dumps({"cpu_seconds": seconds(cell)}))
    found = read_pace(studies, "quick", folder)
    assert found is not None
    return found


def minutes(resolved: Resolved, effort: Effort, found: Pace, folder: Path) -> float:
    study = study_of_size("mine", resolved, effort, Machine()).study
    settings = resolved.settings.model_copy(update={"results_dir": folder})
    plan = jobs([table_of(StudyPart(study, "quick"), grid) for grid in study.grids], settings)
    return found.minutes(study, "quick", plan, Machine())


def linear(cell: Cell) -> float:
    """Seconds of a cell whose clients take one each, and a hundredth for each evaluation."""
    evaluations: int = cell.attack.cost().evaluations
    victims: int = cell.client.victims
    return victims * (1 + 0.01 * evaluations)


def test_times_are_extrapolated_along_clients_and_evaluations(
    resolved: Resolve, tmp_path: Path
) -> None:
    found = resolved(**VARIED)
    measured = run(found, tmp_path, linear)
    assert set(measured.timed) == {
        Cell({**cell.specs, "client": cell.client.setting(), "attack": parse("attack", "best")})
        for cell in attacked(
            study_of_size("mine", found, Effort(8, 4800), Machine()).study, "quick"
        )
    }
    large = Effort(20, 2400)
    cells = list(attacked(study_of_size("mine", found, large, Machine()).study, "quick"))
    assert len(cells) == 2
    attacks = sum(map(linear, cells)) / 60
    others = minutes(found, large, measured, tmp_path) - attacks
    assert 0 < others < 40 * START_SECONDS["fork"] / 60


def test_an_attack_that_ends_early_takes_no_longer_with_a_larger_budget(
    resolved: Resolve, tmp_path: Path
) -> None:
    found = resolved()
    measured = run(found, tmp_path, lambda cell: 3.0)
    small, large = (
        minutes(found, Effort(6, iterations), measured, tmp_path) for iterations in (100, 4800)
    )
    assert small == pytest.approx(large)


def sized(resolved: Resolve, folder: Path, seconds: Callable[[Cell], float], **keys: Any) -> Effort:
    """Size of an assessment whose attacks take so long."""
    found = resolved(**VARIED, **keys)
    measured = run(found, folder, seconds)
    return generate_study("mine", found, Pace(measured.timed, measured.total, RESULTS)).effort


def test_the_size_follows_the_measured_speed(resolved: Resolve, tmp_path: Path) -> None:
    fast = sized(resolved, tmp_path / "fast", lambda cell: 0.01)
    slow = sized(resolved, tmp_path / "slow", linear)
    assert fast == Effort(100, 4800)
    assert slow.iterations < 4800
    assert slow.victims == 6


def test_what_measuring_took_counts_and_the_least_is_run_whatever_it_takes(
    resolved: Resolve, tmp_path: Path
) -> None:
    deployment = resolved(**VARIED)
    measured = run(deployment, tmp_path, linear)
    spent = Pace(measured.timed, 1e6, RESULTS)
    assert generate_study("mine", deployment, spent).effort == Effort(2, 5)


def test_nothing_is_measured_twice_or_if_the_size_is_given(
    resolved: Resolve, tmp_path: Path
) -> None:
    assert read_pace(pilots("mine", resolved()), "quick", tmp_path) is None
    assert len(pilots("mine", resolved(victims=7))) == len(PILOTS)
    for size in ({"victims": 7, "iterations": 9}, {"budget": {"scale": "quick"}}):
        assert pilots("mine", resolved(**size)) == []
    assert read_pace([], "quick", tmp_path) is None


def test_one_budget_bounds_the_time_of_larger_ones(resolved: Resolve, tmp_path: Path) -> None:
    """All of the measured time is taken as proportional to the budget."""
    found = resolved()
    both = run(found, tmp_path, linear)
    first = Pace({cell: times[:1] for cell, times in both.timed.items()}, 0.0, tmp_path)
    small, large = (minutes(found, Effort(1, n), first, tmp_path) for n in (5, 100))
    assert small == pytest.approx(
        minutes(found, Effort(1, 5), replace(both, made=frozenset()), tmp_path)
    )
    assert large > minutes(found, Effort(1, 100), both, tmp_path)
    assert affords("mine", resolved(budget={"minutes": 5}), Effort(1, 40), first)
    slow = replace(first, total=298.0)
    assert not affords("mine", resolved(budget={"minutes": 5}), Effort(1, 40), slow)


def test_attacks_that_were_measured_are_not_counted_again(
    resolved: Resolve, tmp_path: Path
) -> None:
    found = resolved()
    measured = run(found, tmp_path, linear)
    size = PILOTS[0]
    (cell,) = attacked(study_of_size("mine", found, size, Machine()).study, "quick")
    again = minutes(found, size, replace(measured, made=frozenset()), tmp_path)
    start = START_SECONDS["fork"] / 60
    expected = again - linear(cell) / 60 - start
    assert minutes(found, size, measured, tmp_path) == pytest.approx(expected)


def test_cells_that_were_refused_in_their_job_keep_their_estimate(
    resolved: Resolve, tmp_path: Path
) -> None:
    deployment = resolved()
    run(deployment, tmp_path, lambda cell: 0.0)
    for file in tmp_path.rglob("provenance.json"):
        file.unlink()
    found = read_pace(pilots("mine", deployment), "quick", tmp_path)
    assert found is not None and found.timed == {}
    study = study_of_size("mine", deployment, Effort(6, 100), Machine())
    assert minutes(deployment, Effort(6, 100), found, tmp_path) == pytest.approx(study.minutes)


def test_the_smallest_sizes_are_those_at_which_the_speed_is_measured(
    resolved: Resolve, tmp_path: Path
) -> None:
    found = resolved(**VARIED)
    measured = run(found, tmp_path, lambda cell: 1e6)
    least = generate_study("mine", found, Pace(measured.timed, 1e9, tmp_path, measured.made))
    attacks = {
        path_of(reconstruction_of(cell), tmp_path) for cell in attacked(least.study, "quick")
    }
    assert attacks <= measured.made
    few = [size.victims for size in pilot_sizes(resolved(victims=1).deployment)]
    assert few == [1] * len(PILOTS)
