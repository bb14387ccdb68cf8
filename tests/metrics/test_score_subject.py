"""Scores of trained models and of broadcast parameters."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from gleak.artifacts.store import Refused
from gleak.core.errors import ArtifactError
from gleak.metrics.base import metrics_of
from gleak.metrics.score import score_model, score_parameters
from gleak.metrics.score_table import COLUMNS, LEVEL_COLUMNS, read_scores
from tests.metrics.subjects import model_of

LEVELS = {"dataset": "digits", "model": "lenet", "training": "central"}
SILENT = {"audit_bias", "audit_outliers", "audit_reference"}
"""Audits that have nothing to look at: four classes, no convolution, and no reference."""
Score = Callable[..., pd.DataFrame]


@pytest.fixture
def score_accuracies(tmp_path: Path) -> Score:
    """Return a function that scores a model with test accuracies and reads the table back."""

    def score(*accuracies: float) -> pd.DataFrame:
        curves = {"train_loss": np.zeros(len(accuracies)), "test_accuracy": np.array(accuracies)}
        model_of({"weight": np.zeros(3)}, model="lenet", **curves).write(tmp_path / "model.h5")
        table = score_model(tmp_path / "model.h5", tmp_path / "scores.csv", LEVELS)
        stored = read_scores([tmp_path / "scores.csv"])
        pd.testing.assert_frame_equal(table, stored)
        return stored

    return score


@pytest.fixture
def score_audits(tmp_path: Path, simulate: Callable[..., Path]) -> Score:
    """Return a function that audits an honest model and reads the table back."""
    folder = simulate(model="mlp+hidden=16")

    def score(samples: bool = True) -> pd.DataFrame:
        dataset, output = folder / "dataset.h5" if samples else None, tmp_path / "scores.csv"
        table = score_parameters(folder / "model.h5", dataset, output, LEVELS, seed=1)
        pd.testing.assert_frame_equal(table, read_scores([output]), rtol=1e-8)
        return table

    return score


def assert_one_row_per_metric(table: pd.DataFrame, level: str) -> None:
    assert tuple(table.columns) == COLUMNS
    assert table["metric"].tolist() == [metric.name for metric in metrics_of(level)]
    assert set(table["victim"]) == {0}
    assert table["sample"].isna().all()
    for column in LEVEL_COLUMNS:
        assert set(table[column]) == {LEVELS.get(column, "")}


def test_a_model_has_one_row_per_metric_and_the_accuracy_after_the_last_round(
    score_accuracies: Score, tmp_path: Path
) -> None:
    table = score_accuracies(0.1, 0.75, 1 / 3)
    assert_one_row_per_metric(table, "training")
    row = table.set_index("metric").loc["test_accuracy"]
    assert (round(row["value"], 8), row["status"]) == (0.33333333, "ok")
    first = (tmp_path / "scores.csv").read_bytes()
    score_accuracies(0.1, 0.75, 1 / 3)
    assert (tmp_path / "scores.csv").read_bytes() == first


def test_without_test_samples_the_accuracy_is_unavailable_and_says_why(
    score_accuracies: Score, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        row = score_accuracies().set_index("metric").loc["test_accuracy"]
    assert np.isnan(row["value"])
    assert row["status"] == "unavailable"
    assert "no samples in its test split" in caplog.text


def test_parameters_have_one_row_per_metric(score_audits: Score, tmp_path: Path) -> None:
    table = score_audits()
    assert_one_row_per_metric(table, "crafting")
    assert set(table.loc[table["status"] != "ok", "metric"]) == SILENT
    rows = table[table["status"] == "ok"].set_index("metric")["value"]
    assert rows["audit_alarms"] == 0
    assert (rows < 1).all()
    first = (tmp_path / "scores.csv").read_bytes()
    score_audits()
    assert (tmp_path / "scores.csv").read_bytes() == first


def test_audits_that_need_samples_are_unavailable_without(score_audits: Score) -> None:
    table = score_audits(samples=False).set_index("metric")
    unavailable = SILENT | {"audit_dominance", "audit_isolation", "audit_negligible"}
    assert set(table.index[table["status"] == "unavailable"]) == unavailable
    assert table.loc[sorted(unavailable), "value"].isna().all()


@pytest.mark.parametrize(
    "score",
    [
        lambda path, output: score_model(path, output, LEVELS),
        lambda path, output: score_parameters(path, None, output, LEVELS, seed=1),
    ],
    ids=["model", "parameters"],
)
def test_files_without_a_model_are_refused_and_refusals_have_a_row(
    score: Score, tmp_path: Path
) -> None:
    path, output = tmp_path / "model.h5", tmp_path / "scores.csv"
    path.write_text("nothing")
    with pytest.raises(ArtifactError, match=r"model\.h5"):
        score(path, output)
    assert not output.exists()
    Refused(reason="a does not serve b").write(path)
    table = score(path, output)
    assert table.equals(read_scores([output]))
    assert table[["model", "reason"]].to_numpy().tolist() == [["lenet", "a does not serve b"]]
