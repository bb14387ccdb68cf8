from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from gleak.studies.cell import LEVELS, Cell
from gleak.studies.estimate import CALL_SECONDS
from gleak.studies.job_batches import BATCHES, LIGHT_SECONDS, batch_of
from gleak.studies.stage_files import Made, StudyPart, files_in
from gleak.studies.stages import STAGES, jobs_behind
from gleak.studies.study import load_study

STUDIES = sorted((Path(__file__).parents[2] / "studies").glob("*.yaml"))
Node = tuple[str, object]


def cell(*specs: str) -> Cell:
    return Cell.from_path(dict(zip(LEVELS, specs, strict=False)))


def attacked(attack: str, client: str = "fedsgd+victims=2", model: str = "lenet") -> Cell:
    return cell("digits", model, "untrained", "honest", client, "none", attack)


@pytest.mark.parametrize(
    ("rule", "subject", "batch"),
    [
        ("prepare_dataset", cell("digits"), "data"),
        ("prepare_dataset", cell("cifar10"), None),
        ("train_model", cell("digits", "lenet", "untrained"), "data"),
        ("train_model", cell("cifar10", "resnet18", "central+epochs=200"), None),
        ("craft_parameters", cell("digits", "lenet", "untrained", "fishing"), "clients"),
        ("simulate_clients", attacked("blind"), "clients"),
        ("attack", attacked("cpl+iterations=20"), "cells"),
        ("attack", attacked("cpl+iterations=1000000"), None),
        ("attack", attacked("cpa", "fedsgd+victims=2+batch_size=8", "fc2"), "cells"),
        ("attack", attacked("cpa", "fedsgd+victims=100+batch_size=64", "fc2"), None),
        ("attack_shard", attacked("cpl+iterations=20"), None),
        ("tabulate", None, None),
    ],
)
def test_light_jobs_travel_in_the_batch_of_their_stage(
    rule: str, subject: Cell | None, batch: str | None
) -> None:
    assert batch_of(rule, subject) == batch


@pytest.mark.parametrize("attack", ["cpl+iterations=20", "cpl+iterations=1000000", "blind"])
def test_scores_travel_with_their_attack(attack: str) -> None:
    assert batch_of("score", attacked(attack)) == batch_of("attack", attacked(attack))


def test_the_limit_is_of_all_evaluations() -> None:
    most = int(LIGHT_SECONDS / CALL_SECONDS)
    assert batch_of("attack", attacked(f"cpl+iterations={most // 50}")) == "cells"
    assert batch_of("attack", attacked(f"cpl+iterations={most}")) is None


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
@pytest.mark.parametrize("scale", ["quick", "paper"])
def test_no_batch_of_a_study_waits_for_itself(path: Path, scale: str) -> None:
    """Whichever jobs of a name are joined: on no path does a batch end and begin again."""

    @cache
    def behind(job: Node) -> frozenset[str]:
        """Batches that a job waits for, with its own."""
        return frozenset().union(*(passed(job, dependency) for dependency in needed(job)))

    def passed(job: Node, dependency: Node) -> frozenset[str]:
        own, before = batch_of(*job), batch_of(*dependency)
        found = behind(dependency) | ({before} if before else frozenset())
        assert own not in found or own == before, (job, dependency)
        return found

    study = load_study(path)
    parts = [StudyPart(study, scale, "grid", name) for name in study.grids]
    for stage, subject in jobs_behind(Made("tabulate", "table", part) for part in parts):
        behind((stage.rule, subject))


def needed(job: Node) -> Iterator[Node]:
    rule, subject = job
    for made in files_in(STAGES[rule].reads(subject)):
        yield made.rule, made.subject


def test_batches_are_of_stages_in_the_order_of_the_workflow() -> None:
    rules = [rule for batch in BATCHES.values() for rule in batch]
    assert len(rules) == len(set(rules))
    assert set(rules) <= set(STAGES)
