from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import permutations
from pathlib import Path

import pytest

from gleak.core.errors import ArtifactError
from gleak.figures.tabulate import tabulate
from gleak.metrics.score_table import COLUMNS, read_scores
from tests.score_tables import MakeCell, Scored, WriteScores


def test_the_order_of_files_does_not_matter(scored: Scored, write: WriteScores, tmp_path: Path):
    files = [
        write(
            f"{attack}.csv",
            scored("iterations", [3.0, 4.0], attack=attack),
            scored("mse", [[0.1, 0.2], [0.3, 0.4]], attack=attack),
        )
        for attack in ("dlg", "cpl", "truth")
    ]
    output = tmp_path / "out" / "scores.csv"
    written = set()
    for order in permutations(files):
        tabulate(order, output)
        written.add(output.read_bytes())
    assert len(written) == 1
    table = read_scores([output])
    assert tuple(table.columns) == COLUMNS
    assert table["attack"].drop_duplicates().tolist() == ["cpl", "dlg", "truth"]
    assert table["value"][:6].tolist() == [3.0, 0.1, 0.2, 4.0, 0.3, 0.4]


def test_grants_in_use_are_named_once(
    scored: Scored, write: WriteScores, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    table = scored("mse", [[0.1], [0.2]], attack="idlg", grants="labels")
    with caplog.at_level(logging.WARNING):
        tabulate([write("all.csv", table)], tmp_path / "scores.csv")
    assert caplog.messages == ["implausible evaluation: idlg is granted labels"]


def test_a_missing_file_is_named(tmp_path: Path):
    with pytest.raises(ArtifactError, match=r"absent\.csv: no such file"):
        tabulate([tmp_path / "absent.csv"], tmp_path / "scores.csv")
    assert not (tmp_path / "scores.csv").exists()


def test_what_was_refused_has_a_row_with_its_reason(
    scored: Scored, write: WriteScores, row: Callable[..., dict[str, str]], tmp_path: Path
):
    done = write("done.csv", scored("mse", [[0.1]], attack="dlg"))
    refused = {**row(attack="aono"), "reason": "no dense layer"}
    table = tabulate([done], tmp_path / "scores.csv", [refused])
    assert read_scores([tmp_path / "scores.csv"]).equals(table)
    assert table[["attack", "status", "reason"]].to_numpy().tolist() == [
        ["aono", "refused", "no dense layer"],
        ["dlg", "ok", ""],
    ]


def test_each_network_is_a_victim_of_its_cell(scored: Scored, write: WriteScores, tmp_path: Path):
    trainings = ["untrained", "untrained+repetition=1"]
    files = [
        write(f"{place}.csv", scored("test_accuracy", [float(place)], training=text, client=""))
        for place, text in enumerate(trainings)
    ]
    table = tabulate(files, tmp_path / "scores.csv", networks=2)
    assert table[["training", "victim", "value"]].to_numpy().tolist() == [
        ["untrained", 0, 0.0],
        ["untrained", 1, 1.0],
    ]


def test_victims_of_all_networks_are_those_of_one_cell(
    scored: Scored, write: WriteScores, cell: MakeCell, tmp_path: Path
):
    asked = cell(client="fedsgd+victims=4+repeats=2")
    levels = [asked.repeated(number).strings() for number in range(2)]
    assert [one["client"] for one in levels] == [
        "fedsgd+victims=4+repeats=2",
        "fedsgd+victims=4+repeats=2+first=2",
    ]
    files = [
        write(f"{place}.csv", scored("mse", [[float(4 * place + i)] for i in range(4)], **texts))
        for place, texts in enumerate(levels)
    ]
    table = tabulate(files, tmp_path / "scores.csv", networks=2)
    assert table["victim"].tolist() == table["value"].tolist() == [*range(8)]
    assert set(table["client"]) == {str(asked.client)}
    assert set(table["training"]) == {"untrained"}
