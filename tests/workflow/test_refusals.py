"""Cells whose specs do not fit together, found before the run or in it: the others go on."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from gleak.artifacts.store import refusal_in
from gleak.artifacts.update import Update
from gleak.core.errors import RefusedError
from gleak.metrics.score_table import REFUSED, read_scores
from tests.project import NOTHING, Project, copy_project
from tests.score_tables import read_page

MODELS = """
from torch import nn


def convolutional(shape, classes):
    return nn.Sequential(
        nn.Conv2d(shape[0], 2, 3, stride=2),
        nn.Sigmoid(),
        nn.Flatten(),
        nn.Linear(18, classes),
    )
"""
MODEL = "custom+factory=models_of_mine.convolutional"
DATA = "folder+size=8+folder=mine"
SMALL, LARGE = "fedsgd+victims=1", "fedsgd+victims=1+batch_size=9"
MATCHING = "invertgrad+iterations=2"
NO_DENSE_FIRST = "a dense layer with a bias is needed that takes the samples themselves"
TOO_FEW = "batch_size=9 is more than the 4 samples"


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A copy with a network and eight images of its user's."""
    root = copy_project(tmp_path_factory.mktemp("mixed"))
    (root / "models_of_mine.py").write_text(MODELS)
    random = np.random.default_rng(0)
    for split in ("train", "test"):
        for name in ("cat", "dog"):
            folder = root / "data/mine" / split / name
            folder.mkdir(parents=True)
            for number in range(2):
                pixels = random.integers(0, 256, (8, 8, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / f"{number}.png")
    return Project(root, {"studies": "refused"})


@pytest.fixture(scope="module")
def output(mixed: Project) -> str:
    """What the run of the study says; it must succeed."""
    return mixed.run().text


def sent(project: Project, client: str) -> Path:
    return project.results / f"artifacts/{DATA}/{MODEL}/untrained/honest/{client}/none"


def test_what_is_refused_before_the_run_is_said_and_has_no_job(mixed: Project, output: str) -> None:
    said = re.findall("^gleak: study refused, grid mixed: n/a: (.*)$", output, re.MULTILINE)
    assert [line.partition(": ")[0].rpartition("none/")[2] for line in said] == ["aono", "aono"]
    assert all(NO_DENSE_FIRST in line for line in said)
    assert not list(mixed.results.rglob("aono"))


def test_refused_cells_stand_in_the_tables_with_their_reasons(mixed: Project, output: str) -> None:
    folder = mixed.results / "studies/refused/quick"
    scores = read_scores([folder / "grids/mixed.csv"])
    refused = scores[scores["status"] == REFUSED].set_index(["client", "attack"])
    assert refused["value"].isna().all()
    reasons = refused["reason"].to_dict()
    assert set(reasons) == {(SMALL, "aono"), (LARGE, "aono"), (LARGE, MATCHING)}
    assert NO_DENSE_FIRST in reasons[SMALL, "aono"]
    assert TOO_FEW in reasons[LARGE, MATCHING]
    table = pd.read_csv(folder / "errors.csv", keep_default_na=False)
    assert dict(
        zip(zip(table["client"], table["attack"], strict=True), table["reason"], strict=True)
    ) == {
        (SMALL, MATCHING): "",
        **reasons,
    }
    rows, below = read_page(folder / "errors.html")
    assert sum(text.startswith("n/a") for row in rows for text in row) == 3
    assert NO_DENSE_FIRST in below
    assert TOO_FEW in below


def test_what_is_refused_in_a_job_says_so_in_its_place_and_is_made_once(
    mixed: Project, output: str
) -> None:
    update = sent(mixed, LARGE) / "update.h5"
    assert TOO_FEW in refusal_in(update)
    with pytest.raises(RefusedError, match=TOO_FEW):
        Update.read(update)
    assert refusal_in(sent(mixed, SMALL) / "update.h5") is None
    assert NOTHING in mixed.run().text


def test_what_is_asked_for_by_name_fails_with_the_reason(mixed: Project, output: str) -> None:
    update = (sent(mixed, LARGE) / "update.h5").relative_to(mixed.root)
    result = mixed.snakemake(update)
    assert result.code == 1
    assert re.search(f"^gleak: {re.escape(str(update))}: .*{TOO_FEW}", result.text, re.MULTILINE)
    before = mixed.snakemake(
        "--dry-run", (sent(mixed, SMALL) / "aono/scores.csv").relative_to(mixed.root)
    )
    assert before.code == 1
    assert re.search(f"^gleak: attack aono on .*{NO_DENSE_FIRST}", before.text, re.MULTILINE)


def test_an_edit_of_the_code_that_refused_makes_it_again(mixed: Project, output: str) -> None:
    with mixed.edited("gleak/clients/base.py", edit=lambda text: text + "\nEDITED = True\n"):
        again = {(job.rule, job.wildcards.get("client")) for job in mixed.jobs()}
    assert ("simulate_clients", LARGE) in again
