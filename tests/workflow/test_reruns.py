"""What runs again after an edit: what the edit can change, and nothing else."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.project import Job, Project

CPL, GI = "cpl+iterations=20", "invertgrad+iterations=5"
FL = "federated+clients=10+rounds=3+defense=topk"
LEVELS = {
    **dict.fromkeys(["train_model", "score_model"], "training"),
    **dict.fromkeys(["craft_parameters", "score_parameters"], "crafting"),
}
DRAWN = {"draw errors", "draw budget", "draw pictures"}
STUDY = {"tabulate attacks", "judge", "all", *DRAWN}
MODELS = {"tabulate models", "judge", "all", "draw accuracy"}
BROADCASTS = {"tabulate broadcasts", "judge", "all", "draw audits"}
AUDITS = {"score_parameters honest", "score_parameters fishing"}
FISHED = {"craft_parameters fishing", "score_parameters fishing"}
MODEL_SCORES = {f"score_model {FL}", "score_model untrained+init=uniform"}
SCORES = {f"score {CPL}", f"score {GI}", "score blind"}


def name(job: Job) -> str:
    """The rule and the attack, figure, grid, model or crafting it is for."""
    rule = job.rule.removesuffix("_table")
    kinds = [LEVELS[rule]] if rule in LEVELS else ["attack", "figure", "grid"]
    return " ".join([rule, *(job.wildcards[kind] for kind in kinds if kind in job.wildcards)])


def after(project: Project, *files: str, added: str = "\nEDITED = True\n") -> set[str]:
    """The jobs of a run after a line of code, or other text, is added to source files."""
    with project.edited(*files, edit=lambda text: text + added):
        jobs = [name(job) for job in project.jobs()]
    assert max(Counter(jobs).values(), default=1) == 1
    return set(jobs)


@pytest.mark.parametrize(
    ("file", "again"),
    [
        ("gleak/attacks/cpl.py", {f"attack {CPL}", f"score {CPL}", *STUDY}),
        (
            "gleak/matching/engine.py",
            {f"{rule} {attack}" for rule in ("attack", "score") for attack in (CPL, GI)} | STUDY,
        ),
        ("gleak/metrics/mse.py", {*SCORES, "score_truth", *STUDY}),
        ("gleak/metrics/test_accuracy.py", {*MODEL_SCORES, *MODELS}),
        ("gleak/metrics/audit_zeros.py", {*AUDITS, *BROADCASTS}),
        ("gleak/crafting/fishing.py", {*FISHED, *BROADCASTS}),
        ("gleak/training/rounds.py", {f"train_model {FL}", f"score_model {FL}", *MODELS}),
        ("gleak/figures/line_drawing.py", {"draw budget", "all"}),
        ("gleak/figures/judge.py", {"judge", "all"}),
    ],
)
def test_an_edit_reruns_what_it_can_change(finished: Project, file: str, again: set[str]) -> None:
    assert after(finished, file) == again


def test_what_no_job_of_a_study_needs_reruns_nothing(finished: Project) -> None:
    assert after(finished, "gleak/cli.py", "gleak/attacks/idlg.py", "gleak/data/faces.py") == set()


def test_a_table_of_attacks_is_drawn_from_the_code_of_these_alone(project: Project) -> None:
    project.run(studies="registry")
    folder = project.results / "studies/registry/quick"
    assert {path.name for path in folder.iterdir()} == {
        f"compared{suffix}" for suffix in (".svg", ".png", ".csv", ".md", ".tex")
    }
    with project.edited("gleak/metrics/mse.py", edit=lambda text: text + "\nEDITED = True\n"):
        assert project.jobs(studies="registry") == []
    with project.edited("gleak/attacks/cpl.py", edit=lambda text: text + "\nEDITED = True\n"):
        assert {name(job) for job in project.jobs(studies="registry")} == {"draw compared", "all"}


def test_comments_docstrings_and_layout_rerun_nothing(finished: Project) -> None:
    files = ["gleak/attacks/cpl.py", "gleak/metrics/mse.py", "gleak/data/digits.py"]
    assert after(finished, *files, added="\n\n# A comment.\n") == set()
    with finished.edited(*files, edit=lambda text: text.replace('"""', '"""Edited: ', 1)):
        assert finished.jobs() == []


def test_a_changed_default_reruns_the_cells_that_have_it(finished: Project) -> None:
    def edit(text: str) -> str:
        return text.replace('knob(20, "fresh starts', 'knob(21, "fresh starts')

    with finished.edited("gleak/attacks/matching.py", edit=edit):
        again = {name(job) for job in finished.jobs()}
    both = {f"{rule} {attack}" for rule in ("attack", "score") for attack in (CPL, GI)}
    assert again == both | STUDY


def test_another_seed_runs_everything_again(finished: Project) -> None:
    again = {name(job) for job in finished.jobs(seed=1)}
    assert again >= {"prepare_dataset", f"train_model {FL}", "simulate_clients", "attack blind"}
    assert again >= SCORES | STUDY | MODEL_SCORES | MODELS | AUDITS | FISHED | BROADCASTS
