from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from gleak.assessment import assess
from gleak.assessment.assess import CONFIG, COPY, check_folder, prepare
from gleak.assessment.generated_study import Effort
from gleak.core.errors import GleakError, SpecError
from gleak.core.settings import Settings
from gleak.studies.study import load_study

SETTINGS = Settings(studies=[])


def test_a_deployment_becomes_a_study_and_its_configuration(deployment: Path) -> None:
    with deployment.open("a") as file:
        file.write("seed: 3\n")
    found = prepare(deployment, None, SETTINGS, {"psnr": 20})
    found.write()
    assert found.folder == Path("deployment-report")
    study, written = found.generated.study, load_study(found.study_file)
    assert list(written.grids) == ["deployed", "members", "audit"]
    assert written.name == study.name and written.figures == study.figures
    for name, scales in written.grids.items():
        assert scales["quick"].cells == study.grid(name, "quick").cells
    config = yaml.safe_load((found.folder / CONFIG).read_text())
    assert Settings.read(config).studies == ["deployment-report/assessment-deployment.yaml"]
    assert config["seed"] == 3
    assert list(map(str, found.resolved.limits)) == ["psnr ≥ 20"]
    assert list(map(str, found.resolved.thresholds)) == ["ssim ≥ 0.5"]
    assert study.figure("deployed").metrics == ["ssim", "psnr"]
    assert "attacks: best; about" in found.summary()


def test_the_size_is_that_of_the_measured_speed(
    deployment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that takes a tenth of a second for every attack."""

    def make(_: object, files: Sequence[Path], *__: object) -> bool:
        for file in files:
            file.parent.mkdir(parents=True)
            file.touch()
            (file.parent / "provenance.json").write_text(json.dumps({"cpu_seconds": 0.1}))
        return True

    monkeypatch.setattr(assess.Assessment, "make", make)
    estimated = prepare(deployment, None, SETTINGS, {})
    measured = estimated.at_measured_speed(Path("Snakefile"), [])
    assert measured.generated.effort == Effort(100, 4800)
    assert prepare(deployment, None, SETTINGS, {}).generated.effort == measured.generated.effort
    monkeypatch.setattr(assess.Assessment, "make", lambda *_: False)
    assert estimated.at_measured_speed(Path("Snakefile"), ["--dry-run"]) == estimated


def test_the_report_of_the_same_deployment_is_continued(deployment: Path) -> None:
    prepare(deployment, None, SETTINGS, {}).write()
    prepare(deployment, None, SETTINGS, {})
    deployment.write_text(deployment.read_text() + "victims: 7\n")
    with pytest.raises(SpecError, match=r"deployment-report exists, .*--output"):
        prepare(deployment, None, SETTINGS, {})


def test_the_page_which_shows_samples_is_open_to_its_owner_alone(
    deployment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The workflow and what is read of its results are left out."""
    monkeypatch.setattr(assess.Assessment, "make", lambda *_: True)
    monkeypatch.setattr(assess, "assemble", lambda *_: SETTINGS)
    monkeypatch.setattr(assess, "render", lambda *_: "page")
    found = prepare(deployment, None, SETTINGS, {})
    found.write()
    found.run(Path("Snakefile"), [])
    assert (found.folder / assess.PAGE).read_text() == "page"
    assert (found.folder / assess.PAGE).stat().st_mode & 0o777 == 0o600
    assert (found.folder / assess.NUMBERS).stat().st_mode == (found.folder / CONFIG).stat().st_mode


FAULT = "2026-11-29 00:31:04,671 ERROR "
TRACEBACK = """unexpected error:
Traceback (most recent call last):
  File "my_table.py", line 27, in load
    int("a")
    ^^^^^^^^
ValueError: not a number
"""
CHAINED = """
The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "my_table.py", line 30, in load

    raise OwnError("column age")
my.OwnError: column age
"""


@pytest.mark.parametrize(
    ("printed", "told"),
    [
        (f"{FAULT}a: first\n{FAULT}scan.png: broken; repair it\n", "scan.png: broken; repair it"),
        (f"{FAULT}{TRACEBACK}", "ValueError: not a number"),
        (f"{FAULT}{TRACEBACK}{CHAINED}", "my.OwnError: column age"),
        ("MissingInputException in rule attack\n", "snakemake ended with exit code 1"),
    ],
)
def test_a_failed_run_ends_with_the_error_of_its_job(
    deployment: Path, monkeypatch: pytest.MonkeyPatch, printed: str, told: str
) -> None:
    found = prepare(deployment, None, SETTINGS, {})
    found.write()

    def make(*_: object) -> int:
        found.log.write_text(f"Error in rule attack:\n{printed}Exiting because a job failed\n")
        return 1

    monkeypatch.setattr(assess.Workflow, "make", make)
    with pytest.raises(GleakError) as error:
        found.make([], Path("Snakefile"), [])
    assert str(error.value) == f"{told}; all that snakemake said: deployment-report/run.log"


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    check_folder(tmp_path, "any")
    check_folder(tmp_path / "missing", "any")
    (tmp_path / "notes.txt").touch()
    with pytest.raises(SpecError, match="not the report of this deployment"):
        check_folder(tmp_path, "any")
    (tmp_path / COPY).write_text("this")
    check_folder(tmp_path, "this")


def test_a_name_that_cannot_be_part_of_a_path_is_refused(deployment: Path) -> None:
    other = deployment.with_name("my ward.yaml")
    other.write_text(deployment.read_text())
    with pytest.raises(SpecError, match=r"my ward.yaml: the name is part"):
        prepare(other, None, SETTINGS, {})
