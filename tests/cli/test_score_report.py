from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy import stats

from gleak.artifacts.private import Private
from gleak.artifacts.reconstruction import Reconstruction
from gleak.cli.main import main
from gleak.cli.score_report import describe_scores, find_tables
from gleak.metrics.score_table import COLUMNS, refused_scores, save_scores
from tests.commands import Capture, fails

LEVELS = ("digits", "lenet", "untrained", "honest", "fedsgd+victims=3", "none")
PSNR = {"cpl": [20.0, 21.0, 25.0], "dlg": [9.0, 10.0, 11.0], "blind": [12.0, 12.0, 12.0]}


def write_scores(folder: Path, attack: str, values: list[float]) -> None:
    """Scores of three victims with one sample each; the MSE is 1 over the PSNR."""
    levels = ",".join([*LEVELS, attack])
    rows = [
        f"{levels},{victim},0,{metric},{value},ok,,"
        for victim, psnr in enumerate(values)
        for metric, value in (("psnr", psnr), ("mse", 1 / psnr))
    ]
    (folder / attack).mkdir(parents=True)
    (folder / attack / "scores.csv").write_text("\n".join([",".join(COLUMNS), *rows, ""]))


@pytest.fixture
def cells(tmp_path: Path) -> Path:
    """Three attacks on three grey images: one exact, one black, and the blind baseline."""
    folder = tmp_path.joinpath("results", "artifacts", *LEVELS)
    inputs = np.random.default_rng(0).random((3, 1, 1, 8, 8)).astype(np.float32)
    labels = np.zeros((3, 1), int)
    for attack, values in PSNR.items():
        write_scores(folder, attack, values)
        Reconstruction(
            inputs=inputs * (attack == "cpl"), labels=labels, converged=np.ones(3, bool)
        ).write(folder / attack / "reconstruction.h5")
    Private(inputs=inputs, labels=labels, indices=labels).write(folder / "private.h5")
    return folder


def row(text: str, label: str) -> list[str]:
    return next(line.split() for line in text.splitlines() if line.startswith(f"{label} "))


def test_means_have_students_interval_over_victims(cells: Path):
    text = describe_scores(find_tables([cells]), ["psnr"])
    low, high = stats.t.interval(0.95, 2, loc=22, scale=stats.sem(PSNR["cpl"]))
    assert row(text, "cpl") == ["cpl", "3", "22.0", "±", f"{(high - low) / 2:.1f}"]


def test_what_is_not_better_than_blind_is_marked(cells: Path):
    text = describe_scores(find_tables([cells]), ["psnr", "mse"])
    assert row(text, "dlg").count("*") == 2
    assert "*" not in row(text, "cpl") + row(text, "blind")


def test_the_blind_baseline_beside_an_attack_is_found(cells: Path):
    only = cells / "dlg" / "scores.csv"
    assert find_tables([only]) == [only, cells / "blind" / "scores.csv"]


def test_many_long_columns_are_split_into_tables_of_a_hundred_columns(cells: Path):
    names = [f"cpl+iterations={n}+threshold=1e-1{n % 10}+restarts={n}" for n in range(10, 14)]
    for number, name in enumerate(names):
        write_scores(cells, name, [1e-5 * number + 1, 123.456, 7.0])
    text = describe_scores(find_tables([cells]))
    assert text.startswith("/".join(LEVELS) + "/<attack>\n"), "what they share is named once"
    assert max(map(len, text.splitlines()[1:])) <= 100


def test_refused_cells_are_shown_with_the_reason(cells: Path, tmp_path: Path):
    path = cells / "aono" / "scores.csv"
    path.parent.mkdir()
    levels = dict(zip(COLUMNS, [*LEVELS, "aono"], strict=False))
    save_scores(refused_scores(levels, "no dense layer"), path)
    assert "aono: n/a: no dense layer" in describe_scores(find_tables([cells]))


def test_one_victim_has_no_interval(tmp_path: Path):
    write_scores(tmp_path, "cpl", [20.0])
    assert row(describe_scores([tmp_path / "cpl" / "scores.csv"], ["psnr"]), "cpl")[2:] == ["20"]


def test_scores_saves_truth_and_reconstructions_as_one_picture(
    cells: Path, tmp_path: Path, capsys: Capture
):
    output = tmp_path / "compared.png"
    assert main(["scores", str(cells), "--image", str(output)]) == 0
    assert output.stat().st_mode & 0o777 == 0o600
    assert capsys.readouterr().out.endswith(f"{output}\n")
    with Image.open(output) as picture:
        assert picture.height > 4 * 100


@pytest.mark.parametrize("name", ["scores.csv", "other.csv"])
def test_inspect_shows_scores_and_never_advises_to_delete_a_table(
    cells: Path, tmp_path: Path, capsys: Capture, name: str
):
    if name == "scores.csv":
        assert main(["inspect", str(cells / "cpl" / name)]) == 0
        assert "psnr" in capsys.readouterr().out
    else:
        (tmp_path / name).write_text("trial,value\n0,1\n")
        fault = fails(capsys, "inspect", str(tmp_path / name))
        assert "has columns" in fault and "delete" not in fault


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (("scores", "nowhere"), "nowhere: no such file"),
        (("scores", "."), "no scores.csv below it"),
        (("scores", "{cells}", "--metric", "pnsr"), "unknown metric 'pnsr'; did you mean 'psnr'"),
        (("inspect", "notes.txt"), "notes.txt: neither an .h5 file nor a table of scores"),
    ],
)
def test_faults_are_one_line(
    cells: Path, study_folder: Path, capsys: Capture, words: tuple[str, ...], fault: str
):
    Path("empty").mkdir()
    given = [word.format(cells=cells) if word != "." else "empty" for word in words]
    assert fault in fails(capsys, *given)
