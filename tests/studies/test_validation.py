from __future__ import annotations

from pathlib import Path

import pytest

from gleak.core.errors import DataError
from gleak.core.settings import Settings
from gleak.studies.study import Study, load_study
from gleak.studies.validation import (
    check_data,
    describe_checks,
    describe_every_scale,
    examine_study,
)

STUDY = """
title: t
paper: p
grids:
  own:
    dataset: cifar10
    model: lenet
    training: untrained
    crafting: honest
    client: fedsgd
    defense: none
    attack: [cpl, aono]
    quick: &own
      dataset: [digits, folder+size=16+folder=mine+channels=1]
      model: custom+factory=validated_models.dense
      attack: [aono, fi]
    small: *own
figures: {}
"""
NETWORKS = """
from torch import nn


def dense(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(256, classes))
"""
OWN = "custom+factory=validated_models.dense"
REFUSED = "{}/untrained/honest/fedsgd/none/{}: attack {} "


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Study:
    (tmp_path / "validated_models.py").write_text(NETWORKS)
    (tmp_path / "mine.yaml").write_text(STUDY)
    monkeypatch.syspath_prepend(tmp_path)
    return load_study(tmp_path / "mine.yaml")


def test_networks_data_and_refusals_are_told_by_scale(study: Study, tmp_path: Path) -> None:
    for name in ("cat", "dog", "cow"):
        (tmp_path / "mine/train" / name).mkdir(parents=True)
    examined = examine_study(study, tmp_path)
    folder = "folder+size=16+folder=mine+channels=1"
    lines = describe_every_scale(examined, tmp_path)
    assert lines[:3] == [
        f"quick, small: model {OWN} for digits: built for 10 classes, and examined",
        f"quick, small: model {OWN} for {folder}: built for 3 classes, and examined",
        f"quick, small: dataset {folder}: found in {tmp_path}",
    ]
    assert lines[3].startswith(
        "quick, small: grid own: n/a: " + REFUSED.format(f"digits/{OWN}", "fi", "fi")
    )
    assert (
        lines[5]
        == f"paper: dataset cifar10: not in {tmp_path}; downloaded with --config download=true"
    )
    assert lines[6].startswith(
        "paper: grid own: n/a: " + REFUSED.format("cifar10/lenet", "aono", "aono")
    )
    assert len(lines) == 7


def settings(scale: str, data_dir: Path, **changes: bool) -> Settings:
    return Settings.read({"studies": [], "scale": scale, "data_dir": data_dir, **changes})


def test_data_that_are_not_there_are_refused(study: Study, tmp_path: Path) -> None:
    examined = examine_study(study, tmp_path)
    with pytest.raises(DataError, match=f"neither {tmp_path}/mine/train nor"):
        check_data(examined, settings("quick", tmp_path))
    with pytest.raises(DataError, match=r"neither .*/cifar10 nor a download .*download=true"):
        check_data(examined, settings("paper", tmp_path))
    check_data(examined, settings("paper", tmp_path, download=True))
    with pytest.raises(DataError, match="no such folder, but dataset cifar10"):
        check_data(examined, settings("paper", tmp_path / "nowhere", download=True))
    lines = describe_checks(examined, "quick", tmp_path)
    assert "not built, as the number of classes depends on data that are missing" in lines[1]
    assert lines[2].endswith(f": not in {tmp_path}")
