from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from gleak.core.errors import SpecError
from gleak.core.settings import Settings

REPOSITORY = Path(__file__).parents[2]


def test_the_configuration_of_the_repository_names_every_key():
    config = yaml.safe_load((REPOSITORY / "config.yaml").read_text(encoding="utf-8"))
    assert set(config) == set(Settings.model_fields)
    assert Settings.read(config).model_dump(mode="json") == config
    assert Settings.read({"studies": config["studies"]}) == Settings.read(config)


def test_studies_on_a_command_line_are_separated_by_commas():
    config = {"studies": "cpl,agic"}
    assert Settings.read(config).studies == ["cpl", "agic"]
    assert config == {"studies": "cpl,agic"}


@pytest.mark.parametrize(
    ("config", "faults"),
    [
        ({"scael": "quick"}, ["unknown key 'scael'; did you mean 'scale'?"]),
        ({"scale": "medium"}, ["scale = 'medium'", "'quick', 'small', 'headline' or 'paper'"]),
        ({"scale": "gpu"}, ["scale = 'gpu'", "removed; use paper on a GPU"]),
        ({"device": "tpu"}, ["device = 'tpu'", "'auto', 'cpu' or 'cuda'"]),
        ({"seed": -1, "shards": 0}, ["seed = -1", "shards = 0"]),
        ({"seed": "one"}, ["seed = 'one'"]),
        ({"studies": 3}, ["studies = 3"]),
    ],
)
def test_every_fault_is_named(config: dict[str, Any], faults: list[str]):
    with pytest.raises(SpecError) as caught:
        Settings.read({"studies": ["cpl"], **config})
    assert str(caught.value).startswith("config: ")
    for fault in faults:
        assert fault in str(caught.value)


def test_results_that_cannot_be_written_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Settings(studies=["cpl"], results_dir=tmp_path / "not yet there").check_results()
    Settings(studies=["cpl"], results_dir=tmp_path).check_results()
    (tmp_path / "file").touch()
    monkeypatch.setattr("os.access", lambda path, mode: path != tmp_path)
    for folder in (tmp_path, tmp_path / "file"):
        with pytest.raises(SpecError, match=f"results_dir = {folder} .*set results_dir"):
            Settings(studies=["cpl"], results_dir=folder).check_results()


def test_studies_are_names_or_files() -> None:
    folder = Path("studies")
    found = Settings(studies=["cpl", "elsewhere/mine.yaml"]).study_files(folder)
    assert found == {"cpl": folder / "cpl.yaml", "mine": Path("elsewhere/mine.yaml")}
    with pytest.raises(SpecError, match="have one name"):
        Settings(studies=["cpl", "elsewhere/cpl.yaml"]).study_files(folder)
