"""A search run whole, and its choice used."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from gleak.studies.search.adopt import adopt
from gleak.studies.search.chosen import SearchOutcome

if TYPE_CHECKING:
    from tests.project import Job, Project

STUDY = {"studies": "tuned"}
BASE = "cpl+iterations=20+labels=joint"


def attacks(jobs: list[Job]) -> list[str]:
    return [job.wildcards["attack"] for job in jobs if job.attacks]


def test_a_search_is_run_its_choice_adopted_and_used(project: Project) -> None:
    planned = project.run("--dry-run", **STUDY)
    assert attacks(planned.jobs) == [BASE]
    assert "gleak: study tuned: search label not adopted: base attack cpl with " in planned.text
    project.run("searches", **STUDY)
    folder = project.results / "studies/tuned/quick/searches/label"
    trials, outcome = pd.read_csv(folder / "trials.csv"), SearchOutcome.read(folder / "chosen.yaml")
    assert len(trials) == 4
    assert outcome.value == trials["value"].min() < trials["value"][0] == outcome.base_value
    assert project.jobs("searches", **STUDY) == []

    adopt([folder / "chosen.yaml"], project.root / "studies")
    tuned = outcome.chosen.replace("iterations=2", "iterations=20")
    planned = project.run("--dry-run", **STUDY)
    assert attacks(planned.jobs) == [tuned] != [BASE]
    assert "not adopted" not in planned.text
    assert project.jobs("searches", **STUDY) == []

    with project.edited("studies/tuned.yaml", edit=lambda text: text.replace("title:", "title: A")):
        assert project.jobs("searches", **STUDY) == []
    with project.edited("gleak/attacks/dlg.py", edit=lambda text: f"{text}\nEDITED = True\n"):
        assert [job.rule for job in project.jobs("searches", **STUDY)] == ["search", "searches"]

    def longer(text: str) -> str:
        return text.replace("trials: 4", "trials: 5")

    with project.edited("studies/tuned.yaml", edit=longer):
        refused = project.snakemake("--dry-run", **STUDY)
        assert refused.code == 1
        assert "gleak: study 'tuned', grid 'attacks', scale 'quick': search 'label'" in refused.text
        assert [job.rule for job in project.jobs("searches", **STUDY)] == ["search", "searches"]
