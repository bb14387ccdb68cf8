from __future__ import annotations

from pathlib import Path

import pytest

from gleak.core.errors import ArtifactError
from gleak.metrics.score_table import (
    COLUMNS,
    LEVEL_COLUMNS,
    REFUSED,
    TYPES,
    read_scores,
    refusal_in_scores,
    refused_scores,
    save_refusal,
)
from gleak.studies.cell import LEVELS

HEADER = ",".join(COLUMNS)
ROW = "digits,lenet,untrained,honest,fedsgd,none,dlg,0,1,mse,0.5,ok,,"
BATCH_ROW = "digits,lenet,untrained,honest,fedsgd,none,dlg,0,,seconds,,unavailable,labels,"


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


def test_the_levels_are_those_of_a_cell():
    assert LEVEL_COLUMNS == LEVELS


def test_tables_are_joined_in_order_with_their_types(tmp_path: Path):
    first = write(tmp_path / "first.csv", HEADER, ROW)
    second = write(tmp_path / "second.csv", HEADER, BATCH_ROW)
    table = read_scores([first, second])
    assert tuple(table.columns) == COLUMNS
    assert table["metric"].tolist() == ["mse", "seconds"]
    assert table["grants"].tolist() == ["", "labels"]
    assert table["defense"].tolist() == ["none", "none"]
    assert table["value"].isna().tolist() == [False, True]
    assert table["sample"].isna().tolist() == [False, True]
    assert table.dtypes.astype(str).to_dict() == TYPES
    assert table.index.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("lines", "fault"),
    [
        ([""], "not a table of scores"),
        (["a,b", "1,2"], "has columns"),
        ([HEADER, ROW.replace("0.5", "much")], "not a table of scores"),
        ([HEADER, ROW.replace(",ok,", ",fine,")], "'fine'"),
    ],
)
def test_other_files_are_refused_by_name(tmp_path: Path, lines: list[str], fault: str):
    path = write(tmp_path / "scores.csv", *lines)
    with pytest.raises(ArtifactError, match=fault) as raised:
        read_scores([path])
    assert str(path) in str(raised.value)
    with pytest.raises(ArtifactError, match=r"nowhere\.csv: no such file"):
        read_scores([tmp_path / "nowhere.csv"])


def test_a_refused_cell_has_one_row_with_the_reason(tmp_path: Path):
    levels = {"dataset": "digits", "model": "lenet", "grants": "labels", "reason": "none"}
    path = tmp_path / "scores.csv"
    table = save_refusal(levels, "a, b do not fit", path)
    assert read_scores([path]).equals(table)
    assert table.equals(refused_scores(levels, "a, b do not fit"))
    (row,) = table.to_dict("records")
    assert (row["status"], row["reason"]) == (REFUSED, "a, b do not fit")
    assert (row["dataset"], row["attack"], row["metric"], row["grants"]) == ("digits", "", "", "")
    assert refusal_in_scores(path) == "a, b do not fit"


def test_other_files_hold_no_refusal(tmp_path: Path):
    assert refusal_in_scores(write(tmp_path / "scores.csv", HEADER, ROW)) is None
    assert refusal_in_scores(write(tmp_path / "empty.csv", "")) is None
    (tmp_path / "binary.csv").write_bytes(b"\xff\x00")
    assert refusal_in_scores(tmp_path / "binary.csv") is None
    assert refusal_in_scores(tmp_path / "nothing.csv") is None
