from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from gleak.artifacts.store import Refused
from gleak.core.errors import ArtifactError
from gleak.metrics.base import metrics_of
from gleak.metrics.score import score_parameters
from gleak.metrics.score_table import COLUMNS, LEVEL_COLUMNS, read_scores

LEVELS = {"dataset": "digits", "model": "lenet", "training": "untrained", "crafting": "fishing"}
MODEL = "mlp+hidden=16"
SILENT = {"audit_bias", "audit_outliers"}
"""Audits that have nothing to look at in it: it has four classes and no convolution."""
Simulate = Callable[..., Path]


def run(folder: Path, output: Path, dataset: Path | None) -> pd.DataFrame:
    """Audit an honest model and read the table back."""
    table = score_parameters(folder / "model.h5", dataset, output, LEVELS, seed=1)
    stored = read_scores([output])
    pd.testing.assert_frame_equal(table, stored, rtol=1e-8)
    return stored


def test_parameters_have_one_row_per_metric(simulate: Simulate, tmp_path: Path):
    folder = simulate(model=MODEL)
    table = run(folder, tmp_path / "scores.csv", folder / "dataset.h5")
    assert tuple(table.columns) == COLUMNS
    assert table["metric"].tolist() == [metric.name for metric in metrics_of("crafting")]
    assert set(table["victim"]) == {0}
    for level in LEVEL_COLUMNS:
        assert set(table[level]) == {LEVELS.get(level, "")}
    assert set(table.loc[table["status"] != "ok", "metric"]) == SILENT
    rows = table[table["status"] == "ok"].set_index("metric")["value"]
    assert rows["audit_alarms"] == 0
    assert (rows < 1).all()


def test_audits_that_need_samples_are_unavailable_without(simulate: Simulate, tmp_path: Path):
    table = run(simulate(model=MODEL), tmp_path / "scores.csv", None).set_index("metric")
    unavailable = SILENT | {"audit_dominance", "audit_negligible"}
    assert set(table.index[table["status"] == "unavailable"]) == unavailable
    assert table.loc[sorted(unavailable), "value"].isna().all()


def test_equal_inputs_give_equal_bytes(simulate: Simulate, tmp_path: Path):
    folder, written = simulate(model=MODEL), set()
    for name in ("a.csv", "b.csv"):
        run(folder, tmp_path / name, folder / "dataset.h5")
        written.add((tmp_path / name).read_bytes())
    assert len(written) == 1


def test_a_file_that_is_no_model_is_refused(simulate: Simulate, tmp_path: Path):
    with pytest.raises(ArtifactError, match=r"update\.h5"):
        score_parameters(
            simulate(model=MODEL) / "update.h5", None, tmp_path / "scores.csv", LEVELS, seed=1
        )
    assert not (tmp_path / "scores.csv").exists()


def test_parameters_that_were_refused_have_a_row_that_says_so(tmp_path: Path):
    Refused(reason="a does not serve b").write(tmp_path / "parameters.h5")
    files = (tmp_path / "parameters.h5", None, tmp_path / "scores.csv")
    table = score_parameters(*files, LEVELS, seed=1)
    assert table.equals(read_scores([tmp_path / "scores.csv"]))
    assert table["reason"].tolist() == ["a does not serve b"]
