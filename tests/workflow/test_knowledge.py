"""An attack that brings knowledge: what is trained for it, on what, and who reads it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import pytest

from gleak.artifacts.model import Knowledge
from gleak.metrics.score_table import read_scores

if TYPE_CHECKING:
    from tests.project import Job, Project

CELL = "digits/lenet/untrained+init=uniform/honest/fedsgd+victims=2/none"
CODEC = "codec=codec~steps=5~width=4~size=64"
OWN, PHOTOS = (f"painting+{CODEC}", f"painting+{CODEC.replace('codec~', 'codec~public=photos~')}")
TRAINED = "codec+steps=5+width=4+size=64/knowledge.h5"


def named(job: Job, *names: str) -> list[Path]:
    """Files of these names that a job reads."""
    return [path for path in job.files("input") if path.name in names]


@pytest.mark.parametrize(
    ("cell", "attack", "public"),
    [
        (CELL, OWN, "digits"),
        (CELL.replace("digits", "cifar10"), PHOTOS, "photos"),
        (CELL.replace("digits", "cifar10").replace("=2", "=2+split=train"), PHOTOS, "photos"),
    ],
)
def test_knowledge_is_trained_on_public_data_for_the_attack_that_brings_it(
    painting: Project, cell: str, attack: str, public: str
) -> None:
    folder = Path("results/artifacts") / cell / attack
    jobs = {job.rule: job for job in painting.jobs(folder / "scores.csv", download=True)}
    trained = Path("results/knowledge") / public / TRAINED
    training = jobs["train_knowledge"]
    assert training.files("input") == [Path("results/artifacts") / public / "dataset.h5"]
    assert trained in training.files("output")
    readers = {rule for rule, job in jobs.items() if named(job, "knowledge.h5")}
    assert readers == {"attack", "score"}
    assert named(jobs["attack"], "knowledge.h5") == named(jobs["score"], "knowledge.h5")
    assert named(jobs["attack"], "knowledge.h5") == [trained]
    assert not named(jobs["attack"], "private.h5", "dataset.h5")


def test_an_attack_on_victims_it_may_know_stops_with_one_line(painting: Project) -> None:
    cell = CELL.replace("=2", "=2+split=train")
    result = painting.snakemake("--dry-run", f"results/artifacts/{cell}/{OWN}/scores.csv")
    assert result.code == 1
    (line,) = (line for line in result.text.splitlines() if line.startswith("gleak: "))
    assert "is trained on the train split of digits, from which client fedsgd+victims=2" in line


def test_shares_of_a_cell_bring_the_same(painting: Project) -> None:
    jobs = painting.jobs(f"results/artifacts/{CELL}/{OWN}/scores.csv", shards=2)
    shares = [job for job in jobs if job.rule == "attack_shard"]
    assert len(shares) == 2
    for job in shares:
        assert named(job, "knowledge.h5") == [Path("results/knowledge/digits") / TRAINED]
        assert not named(job, "private.h5", "dataset.h5")


def test_by_what_an_attack_is_scored_is_not_given_to_it(painting: Project) -> None:
    attack = "rogs+tagger=tagger~steps=5~tags=2+generator=generator~steps=5"
    folder = Path("results/artifacts") / CELL / attack
    jobs = painting.jobs(folder / "scores.csv")
    own = Path("results/knowledge/digits")
    generator, tagger = (
        own / spec / "knowledge.h5" for spec in ("generator+steps=5", "tagger+steps=5+tags=2")
    )
    read = {job.rule: named(job, "knowledge.h5") for job in jobs}
    assert read["attack"] == [generator]
    assert read["score"] == [generator, tagger]
    assert sum(job.rule == "train_knowledge" for job in jobs) == 2


def test_it_runs_whole_and_an_edit_reruns_what_it_can_change(painting: Project) -> None:
    scores = painting.root / "results/artifacts" / CELL / OWN / "scores.csv"
    target = scores.relative_to(painting.root)
    painting.run(target)
    table = read_scores([scores])
    assert set(table["attack"]) == {OWN}
    assert set(table["grants"]) == {""}
    folder = (painting.root / "results/knowledge/digits" / TRAINED).parent
    assert {path.name for path in folder.iterdir()} == {"knowledge.h5", "provenance.json"}
    assert Knowledge.read(folder / "knowledge.h5").dataset == "digits"
    for file, again in {
        "gleak/knowledge/train_knowledge.py": ["train_knowledge", "attack", "score"],
        "gleak/knowledge/autoencoder.py": ["train_knowledge", "attack", "score"],
        "gleak/attacks/painting.py": ["attack", "score"],
        "gleak/attacks/dlg.py": [],
    }.items():
        with painting.edited(file, edit=lambda text: f"{text}\nEDITED = True\n"):
            assert sorted(job.rule for job in painting.jobs(target)) == sorted(again), file


def test_a_figure_of_losses_has_what_it_shows_trained(painting: Project) -> None:
    painting.run(studies="learned")
    folder = painting.root / "results/studies/learned/quick"
    assert {path.name for path in folder.iterdir()} == {
        f"trainings{suffix}" for suffix in (".svg", ".png", ".csv")
    }
    table = pd.read_csv(folder / "trainings.csv")
    assert set(table["loss"]) == {"mse", "l1", "adversarial", "discriminator"}
    assert set(table["dataset"]) == {"digits"}
    jobs = painting.jobs(studies="learned", scale="paper")
    trained = {job.wildcards["knowledge"] for job in jobs if job.rule == "train_knowledge"}
    assert trained == {"codec+size=512", "postprocessor"}
