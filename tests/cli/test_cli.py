from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gleak.artifacts.private import Private
from gleak.cli.main import COMMANDS, EXIT_BROKEN_PIPE, main
from gleak.studies.search.chosen import SearchOutcome
from gleak.studies.study import load_study
from tests.commands import Capture, fails

HEAVY = {"torch._C", "torchvision", "pandas", "matplotlib", "seaborn", "scipy", "sklearn"}


@pytest.fixture
def private(tmp_path: Path) -> Path:
    """Two victims with one grey image each, the second white."""
    path = tmp_path / "private.h5"
    inputs = np.zeros((2, 1, 1, 8, 8), np.float32)
    inputs[1] = 1
    zeros = np.zeros((2, 1), int)
    Private(inputs=inputs, labels=zeros, indices=zeros).write(path)
    return path


def test_without_a_command_help_is_printed(capsys: Capture):
    assert main([]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in COMMANDS)


def test_commands_are_run(capsys: Capture):
    for words, text in (
        (["list"], "\nattack\n"),
        (["list", "defense"], "gaussian"),
        (["describe", "lenet+width=6"], "model lenet\n"),
    ):
        assert main(words) == 0
        assert text in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (("list", "datset"), "did you mean 'dataset'"),
        (("describe", "lenett"), "did you mean 'lenet'"),
        (("inspect", "nothing.h5"), "nothing.h5"),
        (("audit", "nothing.h5"), "nothing.h5"),
        (("validate", "nothing.yaml"), "nothing.yaml"),
        (("validate", "cppl"), "unknown study 'cppl' in studies/; did you mean 'cpl'"),
        (("plan", "cppl"), "unknown study 'cppl' in studies/; did you mean 'cpl'"),
        (("plan", "--scale", "papr"), "scale = 'papr'"),
        (("plan", "--config", "nothing.yaml"), "--config FILE"),
        (("adopt", "nothing.yaml"), "nothing.yaml: cannot read the chosen.yaml of a search"),
        (("adopt", "config.yaml"), "config.yaml: "),
    ],
)
def test_faults_are_one_line(
    study_folder: Path, capsys: Capture, words: tuple[str, ...], fault: str
):
    assert fault in fails(capsys, *words)


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("studies: [cpl", "config.yaml: "),
        ("- cpl", "config.yaml: "),
        ("scale: quick", "config.yaml names no studies; name some"),
    ],
)
def test_a_configuration_that_plans_nothing(
    study_folder: Path, capsys: Capture, content: str, fault: str
):
    Path("config.yaml").write_text(content, encoding="utf-8")
    assert fault in fails(capsys, "plan")


def test_inspect_describes_a_file_and_saves_an_image(
    private: Path, study_folder: Path, capsys: Capture
):
    assert main(["inspect", str(private)]) == 0
    printed = capsys.readouterr().out
    assert "gleak/private" in printed
    assert "/inputs" in printed
    assert main(["inspect", str(private), "--image", "1"]) == 0
    assert capsys.readouterr().out == "private-1.png\n"
    assert main(["inspect", str(private), "--image", "0", "--output", "black.png"]) == 0
    assert np.asarray(Image.open("private-1.png")).min() == 255
    assert np.asarray(Image.open("black.png")).max() == 0
    capsys.readouterr()
    assert "--image N" in fails(capsys, "inspect", str(private), "--output", "a.png")


def test_validate_takes_every_study_of_the_folder(study_folder: Path, capsys: Capture):
    assert main(["validate"]) == 0
    printed = capsys.readouterr().out
    assert "studies/cpl.yaml: ok\n" in printed
    study = load_study("studies/cpl.yaml")
    for name in study.grids:
        cells = [
            str(len(study.grid(name, scale).cells)) if name in study.at(scale).grids else "–"
            for scale in study.scales
        ]
        assert [name, *cells] in [line.split() for line in printed.splitlines()]
    assert f"figures: {', '.join(study.figures)}\n" in printed


def test_validate_takes_a_study_without_grids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
):
    figure = "{kind: attacks, attacks: dlg}"
    monkeypatch.chdir(tmp_path)
    assert "no studies/*.yaml here" in fails(capsys, "validate")
    text = f"title: t\npaper: p\ngrids: {{}}\nfigures: {{compared: {figure}}}\n"
    (tmp_path / "mine.yaml").write_text(text)
    assert main(["validate", str(tmp_path / "mine.yaml")]) == 0
    assert "mine.yaml: ok\nno grids\nfigures: compared\n" in capsys.readouterr().out


def test_validate_names_the_faults_of_all_files(study_folder: Path, capsys: Capture):
    text = Path("studies/cpl.yaml").read_text()
    for name, key in (("a", "figurs"), ("z", "grid")):
        Path(f"studies/{name}.yaml").write_text(f"{text}\n{key}: {{}}\n")
    assert main(["validate"]) == 1
    captured = capsys.readouterr()
    assert captured.out.count(": ok\n") == 1
    first, second = captured.err.splitlines()
    assert "studies/a.yaml" in first
    assert "did you mean 'figures'" in first
    assert "studies/z.yaml" in second
    assert "did you mean 'grids'" in second


def test_validate_and_plan_tell_of_data_and_of_cells_that_do_not_fit(
    study_folder: Path, capsys: Capture
):
    source = Path(__file__).parents[1] / "workflow" / "studies" / "own.yaml"
    text = source.read_text().replace("attack: blind", "attack: [cpl, aono]")
    Path("studies/mine.yaml").write_text(text)
    assert "data_dir = data: no such folder, but dataset folder" in fails(
        capsys, "validate", "mine"
    )
    Path("data/mine/test").mkdir(parents=True)
    for command in (["validate", "mine"], ["plan", "mine", "--grids"]):
        assert main(command) == 0
        printed = capsys.readouterr().out
        assert "dataset folder+size=16+folder=mine: found in data\n" in printed
        assert (
            "fedsgd+victims=1/none/aono: attack aono needs a first layer that is dense" in printed
        )


@pytest.fixture
def tuned(study_folder: Path) -> Path:
    """Beside the repository's study one with a search, and what came of it at the quick scale."""
    source = Path(__file__).parents[1] / "workflow" / "studies" / "tuned.yaml"
    Path("studies/tuned.yaml").write_bytes(source.read_bytes())
    search = load_study("studies/tuned.yaml").search("label", "quick")
    outcome = SearchOutcome(
        study="tuned",
        scale="quick",
        search="label",
        chosen="cpl+iterations=2+alpha=0.25",
        value=0.5,
        base_value=0.75,
        metric="mse",
        trials=4,
        levels=search.cell.strings(),
        fingerprint=search.fingerprint,
    )
    outcome.write(Path("results/chosen.yaml"))
    return Path("results/chosen.yaml")


def test_adopt_says_what_was_chosen_and_validate_that_it_is(tuned: Path, capsys: Capture):
    assert main(["validate", "tuned"]) == 0
    printed = capsys.readouterr().out
    assert "\nsearch label: chosen at no scale\n" in printed
    assert "\nquick, small, paper: search label not adopted: base attack cpl with " in printed
    assert main(["adopt", str(tuned)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("tuned (quick), search label: cpl+iterations=2+alpha=0.25 has mse")
    assert main(["validate", "tuned"]) == 0
    assert "\nsearch label: chosen at quick\n" in capsys.readouterr().out


def test_validate_refuses_the_choice_of_another_search(tuned: Path, capsys: Capture):
    assert main(["adopt", str(tuned)]) == 0
    capsys.readouterr()
    path = Path("studies/tuned.yaml")
    path.write_text(path.read_text().replace("trials: 4", "trials: 5"))
    fault = "search 'label' has changed since its choice was adopted"
    assert fault in fails(capsys, "validate", "tuned")
    assert fault in fails(capsys, "plan", "tuned")
    assert "has changed since; run it again" in fails(capsys, "adopt", str(tuned))


def test_plan_tells_of_searches(tuned: Path, capsys: Capture):
    assert main(["plan", "tuned", "cpl"]) == 0
    printed = capsys.readouterr().out
    assert "\ntuned: snakemake searches: 1 search of 4 trials" in printed
    assert "\ntuned: search label not adopted: base attack cpl with " in printed


def test_plan_takes_the_studies_and_the_scale_of_the_configuration(
    study_folder: Path, capsys: Capture
):
    assert main(["plan"]) == 0
    configured = capsys.readouterr().out
    assert main(["plan", "cpl", "--scale", "quick"]) == 0
    assert capsys.readouterr().out == configured
    assert configured.startswith("quick ")
    assert "\nSpeed: " in configured
    assert "attacks" not in configured
    assert main(["plan", "studies/cpl.yaml", "--scale", "paper"]) == 0
    assert capsys.readouterr().out.startswith("paper ")
    assert main(["plan", "--grids"]) == 0
    printed = capsys.readouterr().out
    assert "cpl (quick): " in printed
    assert "\nattacks " in printed
    assert "\njobs: prepare_dataset " in printed
    assert max(map(len, printed.splitlines())) <= 100


def test_plan_counts_what_studies_share_once(study_folder: Path, capsys: Capture):
    Path("studies/again.yaml").write_bytes(Path("studies/cpl.yaml").read_bytes())
    assert main(["plan", "cpl", "again"]) == 0
    rows = {words[0]: words for words in map(str.split, capsys.readouterr().out.splitlines()[:5])}
    one, other, together = (rows[name] for name in ("cpl", "again", "together"))
    assert one[3] == other[3] == together[3]
    assert int(one[4]) == int(other[4]) < int(together[4]) < 2 * int(one[4])


def test_a_reader_that_ends_early_is_no_error() -> None:
    command = [sys.executable, "-m", "gleak", "list"]
    reading, writing = os.pipe()
    os.close(reading)
    ended = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (EXIT_BROKEN_PIPE, "")


def test_commands_import_nothing_heavy(tuned: Path, private: Path, simulate: Callable[..., Path]):
    commands = [
        ["list"],
        ["describe", "cpl"],
        ["validate"],
        ["plan"],
        ["inspect", str(private)],
        ["audit", str(simulate(model="mlp+hidden=16") / "model.h5")],
        ["adopt", str(tuned)],
    ]
    code = (
        "import sys; from gleak.cli.main import main\n"
        f"for words in {commands}:\n"
        "    assert main(words) == 0\n"
        f"    print(words[0], *sorted(set({HEAVY}) & set(sys.modules)), file=sys.stderr)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout
    assert found.stderr.splitlines() == [words[0] for words in commands]
