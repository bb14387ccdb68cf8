from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gleak.core.errors import DataError
from gleak.data.adult import COLUMNS, Adult, read_records

CATEGORIES = {
    "workclass": 9,
    "education": 16,
    "marital-status": 7,
    "occupation": 15,
    "relationship": 6,
    "race": 5,
    "sex": 2,
    "native-country": 42,
}


def record(number: int, income: str, countries: int = 42) -> str:
    """A row as in the files; category ``?`` is the first of each column."""
    values = []
    for name, kind in COLUMNS.items():
        if kind is float:
            values.append(str(100 + number))
        elif name != "income":
            place = number % min(CATEGORIES[name], countries)
            values.append(f"{name}-{place}" if place else "?")
    return ", ".join([*values, income])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Tiny files with every quirk of the real ones: comment line, full stops, empty last line."""
    folder = tmp_path / "adult"
    folder.mkdir()
    train = [record(number, "<=50K" if number % 3 else ">50K") for number in range(41)]
    test = ["|1x3 Cross validator", record(41, ">50K."), record(0, "<=50K.")]
    (folder / "adult.data").write_text("\n".join([*train, "", ""]))
    (folder / "adult.test").write_text("\n".join([*test, "", ""]))
    return folder


def test_both_files_are_read(folder: Path) -> None:
    dataset = Adult().load(folder.parent, seed=0)
    dataset.validate()
    assert dataset.shape == Adult().shape
    assert dataset.train_inputs.shape == (41, 108) and dataset.test_inputs.shape == (2, 108)
    assert list(dataset.train_labels) == [int(number % 3 == 0) for number in range(41)]
    assert list(dataset.test_labels) == [1, 0]
    assert list(dataset.class_names) == ["<=50K", ">50K"]


def test_groups_follow_the_columns_of_the_file(folder: Path) -> None:
    dataset = Adult().load(folder.parent, seed=0)
    sizes = [CATEGORIES.get(name, 1) for name in COLUMNS if name != "income"]
    assert list(np.bincount(dataset.feature_groups)) == sizes
    names = [name.partition("=")[0] for name in dataset.feature_names]
    assert names == [list(COLUMNS)[group] for group in dataset.feature_groups]
    assert "workclass=?" in dataset.feature_names
    for group, size in enumerate(sizes):
        hot = dataset.test_inputs[:, dataset.feature_groups == group]
        assert size == 1 or np.array_equal(hot.sum(axis=1), [1, 1])


def test_numbers_are_scaled_by_train(folder: Path) -> None:
    dataset = Adult().load(folder.parent, seed=0)
    assert np.allclose(dataset.train_inputs[:, 0], np.arange(41) / 40)
    assert list(dataset.test_inputs[:, 0]) == [1, 0]


def test_missing_files_are_told_with_their_origin(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"adult/adult\.data: .*archive\.ics\.uci\.edu.*data_dir"):
        Adult().load(tmp_path, seed=0)


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("39, Private, 1", "15 values"),
        (record(1, "<=50K") + ", 7", "15 values|cannot be read"),
        (record(1, "maybe"), "incomes"),
        (record(1, "<=50K").replace("101", "old", 1), "cannot be read"),
        (record(1, "<=50K").replace("101", "", 1), "15 values"),
    ],
)
@pytest.mark.parametrize("alone", [True, False])
def test_malformed_rows_are_refused(folder: Path, line: str, fault: str, alone: bool) -> None:
    path = folder / "adult.data"
    path.write_text(line if alone else f"{record(0, '>50K')}\n{line}\n")
    with pytest.raises(DataError, match=rf"adult\.data: .*({fault})"):
        read_records(path)


def test_files_without_all_categories_are_refused(folder: Path) -> None:
    rows = [record(number, ">50K", countries=41) for number in range(50)]
    for name in ("adult.data", "adult.test"):
        (folder / name).write_text("\n".join(rows))
    with pytest.raises(DataError, match="107 features instead of 108"):
        Adult().load(folder.parent, seed=0)
