"""``gleak rehearse``: a line for each grid, the faults by name, and an exit code."""

from __future__ import annotations

from pathlib import Path

import pytest

from gleak.cli.main import main
from gleak.cli.rehearse_command import describe
from gleak.rehearsal.rehearse_cells import GridReport, RehearsalOutcome
from gleak.studies.cell import LEVELS, Cell
from tests.commands import Capture, fails

STUDY = """
title: Mine
paper: none
base: {dataset: digits, model: mlp, training: untrained, crafting: honest, client: fedsgd,
  defense: none}
grids:
  first: {attack: [aono], controls: [blind]}
  second: {attack: [melis], controls: []}
figures: {}
"""


@pytest.fixture
def mine(tmp_path: Path, study_folder: Path) -> str:
    path = tmp_path / "mine.yaml"
    path.write_text(STUDY)
    return str(path)


def test_each_grid_is_a_line(mine: str, capsys: Capture) -> None:
    assert main(["rehearse", mine, "--grid", "first"]) == 0
    first, *note = capsys.readouterr().out.splitlines()
    assert first.startswith("mine first: 2 ok; at most ")
    assert " GB (" in first
    assert "Not rehearsed" in "\n".join(note)


def test_a_gpu_that_is_too_small_is_a_failure(mine: str, capsys: Capture) -> None:
    assert main(["rehearse", mine, "--grid", "second", "--memory", "1e-6"]) == 1
    _, fault, *_ = capsys.readouterr().out.splitlines()
    assert fault.startswith("  stage model of digits/mlp/untrained/honest/fedsgd/none/melis: ")
    assert "more than the 1e-06 GB of the GPU; use shards" in fault


def test_an_unknown_grid_is_named(mine: str, capsys: Capture) -> None:
    assert "unknown grid 'frist'; did you mean 'first'?" in fails(
        capsys, "rehearse", mine, "--grid", "frist"
    )


def cell(attack: str) -> Cell:
    texts = ("digits", "mlp", "untrained", "honest", "fedsgd", "none", attack)
    return Cell.parse(dict(zip(LEVELS, texts, strict=True)))


def test_equal_faults_are_one_line() -> None:
    fault = RehearsalOutcome("client", 5, "wrong device")
    outcomes = {
        cell("aono"): fault,
        cell("melis"): fault,
        cell("blind"): RehearsalOutcome("client", 2 * 10**9),
    }
    lines = describe(GridReport("mine", "first", 3, outcomes)).splitlines()
    assert lines == [
        "mine first: 1 ok, 2 failed, 3 refused; at most 2 GB (client of "
        "digits/mlp/untrained/honest/fedsgd/none/blind)",
        "  stage client of digits/mlp/untrained/honest/fedsgd/none/aono and 1 others: wrong device",
    ]
