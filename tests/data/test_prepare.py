from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from gleak.artifacts.dataset import Dataset
from gleak.core.errors import DataError
from gleak.core.registry import parse
from gleak.data.prepare import check_source, prepare_dataset, source_facts
from gleak.runtime.provenance import record


@pytest.mark.parametrize("text", ["photos+size=16+crops=2", "digits", "breast_cancer"])
def test_equal_specs_and_seeds_give_equal_bytes(tmp_path: Path, text: str) -> None:
    paths = [tmp_path / folder / "dataset.h5" for folder in ("first", "second")]
    for path in paths:
        prepare_dataset(parse("dataset", text), tmp_path, 3, path)
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_the_artifact_names_its_spec_and_seed(tmp_path: Path) -> None:
    output = tmp_path / "dataset.h5"
    prepare_dataset(parse("dataset", "photos+crops=1"), tmp_path, 7, output)
    dataset = Dataset.read(output)
    assert (dataset.spec, dataset.seed) == ("photos+crops=1", 7)
    again = parse("dataset", "photos+crops=1").load(tmp_path, seed=7)
    assert np.array_equal(dataset.train_inputs, again.train_inputs)


def test_samples_of_another_shape_than_stated_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = parse("dataset", "breast_cancer")
    monkeypatch.setattr(type(spec), "shape", (4,))
    with pytest.raises(DataError, match=r"have shape \(30,\), but its class says \(4,\)"):
        prepare_dataset(spec, tmp_path, 0, tmp_path / "dataset.h5")


def test_an_empty_split_survives_the_file(pets: Path) -> None:
    shutil.rmtree(pets / "pets" / "train")
    spec = parse("dataset", "folder+size=4+folder=pets")
    prepare_dataset(spec, pets, 0, pets / "dataset.h5")
    dataset = Dataset.read(pets / "dataset.h5")
    assert dataset.train_inputs.shape == (0, 3, 4, 4) and dataset.shape == spec.shape
    assert dataset.samples("test").shape == (4, 3, 4, 4)


def test_nothing_is_written_without_data(tmp_path: Path) -> None:
    with pytest.raises(DataError):
        prepare_dataset(parse("dataset", "imagenet"), tmp_path, 0, tmp_path / "dataset.h5")
    assert list(tmp_path.iterdir()) == []


def test_data_from_another_folder_are_refused(tmp_path: Path) -> None:
    spec, prepared = parse("dataset", "folder+folder=pets"), tmp_path / "made/dataset.h5"
    mine, other = tmp_path / "mine", tmp_path / "other"
    mine.mkdir()
    prepared.parent.mkdir()
    with record(prepared.parent, **source_facts(spec, mine)):
        pass
    check_source(prepared, mine)
    check_source(prepared, tmp_path / "made/../mine")
    with pytest.raises(DataError, match=f"data_dir = {mine}, but data_dir is {other} now"):
        check_source(prepared, other)


def test_data_of_unknown_origin_are_accepted(tmp_path: Path) -> None:
    check_source(tmp_path / "dataset.h5", tmp_path)
    with record(tmp_path, **source_facts(parse("dataset", "digits"), tmp_path)):
        pass
    check_source(tmp_path / "dataset.h5", tmp_path / "other")
