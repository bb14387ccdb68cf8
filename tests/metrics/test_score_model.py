from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from gleak.artifacts.model import Model
from gleak.artifacts.store import Refused
from gleak.core.errors import ArtifactError
from gleak.metrics.base import metrics_of
from gleak.metrics.score import score_model
from gleak.metrics.score_table import COLUMNS, LEVEL_COLUMNS, read_scores

LEVELS = {"dataset": "digits", "model": "lenet", "training": "central"}


def run(folder: Path, *accuracies: float) -> pd.DataFrame:
    """Score a model with these accuracies and read the table back."""
    model = Model(
        model="lenet",
        classes=10,
        input_shape=np.array([1, 16, 16]),
        parameters={"weight": np.zeros(3)},
        buffers={},
        train_loss=np.zeros(len(accuracies)),
        test_accuracy=np.array(accuracies),
    )
    model.write(folder / "model.h5")
    table = score_model(folder / "model.h5", folder / "scores.csv", LEVELS)
    stored = read_scores([folder / "scores.csv"])
    pd.testing.assert_frame_equal(table, stored)
    return stored


def test_a_model_has_one_row_per_metric(tmp_path: Path):
    table = run(tmp_path, 0.1, 0.75, 0.5)
    assert tuple(table.columns) == COLUMNS
    assert table["metric"].tolist() == [metric.name for metric in metrics_of("training")]
    assert set(table["victim"]) == {0}
    assert table["sample"].isna().all()
    for level in LEVEL_COLUMNS:
        assert set(table[level]) == {LEVELS.get(level, "")}


def test_the_accuracy_is_that_after_the_last_round(tmp_path: Path):
    row = run(tmp_path, 0.1, 0.75, 0.5).set_index("metric").loc["test_accuracy"]
    assert (row["value"], row["status"]) == (0.5, "ok")


def test_without_test_samples_it_is_unavailable_and_says_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    with caplog.at_level(logging.WARNING):
        row = run(tmp_path).set_index("metric").loc["test_accuracy"]
    assert np.isnan(row["value"])
    assert row["status"] == "unavailable"
    assert "no samples in its test split" in caplog.text


def test_equal_inputs_give_equal_bytes(tmp_path: Path):
    written = set()
    for _ in range(2):
        run(tmp_path, 1 / 3)
        written.add((tmp_path / "scores.csv").read_bytes())
    assert len(written) == 1


def test_a_file_that_is_no_model_is_refused(tmp_path: Path):
    (tmp_path / "model.h5").write_text("nothing")
    with pytest.raises(ArtifactError, match=r"model\.h5"):
        score_model(tmp_path / "model.h5", tmp_path / "scores.csv", LEVELS)
    assert not (tmp_path / "scores.csv").exists()


def test_a_model_that_was_refused_has_a_row_that_says_so(tmp_path: Path):
    Refused(reason="a does not serve b").write(tmp_path / "model.h5")
    table = score_model(tmp_path / "model.h5", tmp_path / "scores.csv", LEVELS)
    assert table.equals(read_scores([tmp_path / "scores.csv"]))
    assert table[["model", "reason"]].to_numpy().tolist() == [["lenet", "a does not serve b"]]
