from __future__ import annotations

from pathlib import Path

import pytest

from gleak.assessment.assess import Assessment
from gleak.assessment.verdict_words import MEANINGS
from gleak.cli.main import main
from tests.assessment.test_report_page import report
from tests.commands import Capture


@pytest.mark.parametrize(
    ("verdict", "code"),
    [
        ("exposed", 3),
        ("partly exposed", 3),
        ("inconclusive", 4),
        ("not found", 0),
        ("not measured", 1),
    ],
)
def test_the_exit_code_is_the_verdict(
    deployment: Path, monkeypatch: pytest.MonkeyPatch, verdict: str, code: int
) -> None:
    found = report(verdict=verdict, meaning=MEANINGS[verdict])
    options = []
    monkeypatch.setattr(Assessment, "at_measured_speed", lambda found, *_: found)
    monkeypatch.setattr(Assessment, "run", lambda *words: options.append(words[2]) or found)
    assert main(["assess", "deployment.yaml", "--", "--cores", "2"]) == code
    assert main(["assess", "--", "--cores", "2"]) == code
    assert options == [["--cores", "2"]] * 2


def test_a_dry_run_prints_what_snakemake_said_and_no_report(
    deployment: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    def make(assessment: Assessment, *_: object) -> bool:
        assessment.log.write_text("12 jobs\n")
        return False

    monkeypatch.setattr(Assessment, "make", make)
    assert main(["assess", "--", "--dry-run"]) == 0
    assert capsys.readouterr().out.endswith("12 jobs\n\nnothing was run, so no report\n")
    assert not (deployment.parent / "deployment-report/report.html").exists()


def test_a_bad_file_is_one_line_and_exits_with_2(deployment: Path, capsys: Capture) -> None:
    deployment.write_text("model: lennet\ndata: digits\n")
    assert main(["assess"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("gleak: deployment.yaml: model: unknown model 'lennet'")
    assert error.count("\n") == 1


def test_a_plan_writes_nothing(deployment: Path, capsys: Capture) -> None:
    assert main(["assess", "--plan", "--fail-above", "psnr=30"]) == 0
    printed = capsys.readouterr().out
    assert "attacks: best" in printed
    assert "assessment-deployment.yaml" not in printed
    assert [*deployment.parent.iterdir()] == [deployment]


@pytest.mark.parametrize("text", ["ssim", "ssim=high", "=1", "sism=0.5"])
def test_a_threshold_that_cannot_be_read_is_refused(deployment: Path, text: str) -> None:
    assert main(["assess", "--fail-above", text]) == 2


def test_init_writes_a_file_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["assess", "--init"]) == 0
    assert main(["assess", "--init"]) == 2
    assert "deployment.yaml exists already" in capsys.readouterr().err
    assert main(["assess", "--plan"]) == 0


def test_a_missing_workflow_is_named(deployment: Path, capsys: Capture) -> None:
    assert main(["assess", "--snakefile", "nowhere/Snakefile"]) == 2
    assert "--snakefile" in capsys.readouterr().err
