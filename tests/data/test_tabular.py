from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gleak.core.errors import DataError
from gleak.data.tabular import COLUMNS, Adult, BreastCancer, encode_table, read_records

ROOT = Path(__file__).parents[2]
ROWS = st.lists(
    st.tuples(st.floats(-1e6, 1e6), st.sampled_from("abc?"), st.integers(-9, 9)),
    min_size=1,
    max_size=12,
)


def table(rows: list[tuple]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["wage", "job", "age"]).astype({"job": str})


@given(train=ROWS, test=ROWS)
def test_values_lie_in_the_unit_interval_and_one_of_each_group_is_hot(
    train: list[tuple], test: list[tuple]
) -> None:
    features = encode_table(table(train), table(test))
    jobs = sorted({job for _, job, _ in train + test})
    assert features.names == ["wage", *(f"job={job}" for job in jobs), "age"]
    assert list(features.groups) == [0, *(1 for _ in jobs), 2]
    for rows, values in ((train, features.train), (test, features.test)):
        assert values.dtype == np.float32
        assert values.min() >= 0 and values.max() <= 1
        hot = values[:, features.groups == 1]
        assert np.array_equal(hot.sum(axis=1), np.ones(len(rows)))
        assert [jobs[place] for place in hot.argmax(axis=1)] == [job for _, job, _ in rows]


def test_scaling_follows_train_and_clips_test() -> None:
    train, test = table([(10, "a", 1), (20, "a", 1)]), table([(5, "b", 1), (15, "a", 3)])
    features = encode_table(train, test)
    assert list(features.train[:, 0]) == [0, 1]
    assert list(features.test[:, 0]) == [0, 0.5]
    assert list(features.train[:, -1]) == [0, 0]
    assert list(features.test[:, -1]) == [0, 1]


@pytest.mark.parametrize("kind", [object, "str", "category"])
def test_missing_texts_are_a_category_of_their_own(kind: str | type) -> None:
    train = pd.DataFrame({"job": ["nurse", None, "clerk"]}).astype(kind)
    test = pd.DataFrame({"job": [None, "nurse"]}).astype(kind)
    features = encode_table(train, test)
    assert features.names == ["job=clerk", "job=nurse", "job=unknown"]
    assert features.train.tolist() == [[0, 1, 0], [0, 0, 1], [1, 0, 0]]
    assert features.test.tolist() == [[0, 0, 1], [0, 1, 0]]


def test_a_truth_value_may_be_missing() -> None:
    column = pd.DataFrame({"smokes": [True, False, np.nan]})
    names = encode_table(column, column).names
    assert names == ["smokes=False", "smokes=True", "smokes=unknown"]


@pytest.mark.parametrize("kind", ["float32", "Float64", "Int64"])
def test_a_numeric_column_with_missing_values_is_named(kind: str) -> None:
    train = pd.DataFrame({"age": [1, 2], "hours": [None, 40]}).astype({"hours": kind})
    test = pd.DataFrame({"age": [1, 2, 3], "hours": [None, 38, None]}).astype({"hours": kind})
    with pytest.raises(DataError, match=r"^column hours: 3 missing values; fill them"):
        encode_table(train, test)


EXAMPLE = """
from pathlib import Path

import patients
from gleak.core.errors import DataError
from gleak.core.registry import parse

spec = parse("dataset", "patients")
try:
    spec.check_data(Path("empty"))
except DataError as error:
    print(error)
dataset = spec.load(Path(), seed=0)
dataset.validate()
assert dataset.shape == spec.shape and dataset.classes == spec.classes
print(*dataset.feature_names, dataset.modality, len(dataset.train_labels))
"""


def test_the_table_of_the_guide_is_read(tmp_path: Path) -> None:
    guide = (ROOT / "docs/guide/extending.md").read_text(encoding="utf-8")
    code = re.search(r"```python\n(# patients\.py\n.*?)```", guide, re.DOTALL)[1]
    header, *rows = re.search(r"```text\n(age,.*?)```", guide, re.DOTALL)[1].splitlines()
    (tmp_path / "patients.py").write_text(code)
    (tmp_path / "patients.csv").write_text("\n".join([header, *(4 * rows)]))
    (tmp_path / "empty").mkdir()
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-W", "error", "-c", EXAMPLE]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.stdout.splitlines() == [
        "empty/patients.csv: no such file; put the table there",
        f"age ward=medical ward=surgical ward=unknown hours tabular {3 * len(rows)}",
    ], done.stderr


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
    """Return a row as in the files; category ``?`` is the first of each column."""
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
    """Small files with a comment line, full stops and an empty last line, as in the real ones."""
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
    with pytest.raises(DataError, match="107 features, not 108"):
        Adult().load(folder.parent, seed=0)


def test_columns_are_scaled_by_train_and_have_their_own_groups() -> None:
    dataset = BreastCancer().load(Path("/nonexistent"), seed=0)
    assert np.array_equal(dataset.train_inputs.min(axis=0), np.zeros(30))
    assert np.array_equal(dataset.train_inputs.max(axis=0), np.ones(30))
    assert dataset.test_inputs.dtype == np.float32
    assert list(dataset.feature_groups) == list(range(30))
    assert dataset.feature_names[0] == "mean radius"
