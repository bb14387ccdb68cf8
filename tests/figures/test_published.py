from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from gleak.core.errors import SpecError
from gleak.core.registry import parse
from gleak.figures.published import add_published, read_published
from gleak.figures.statistics import cells_of, summarise, table_of
from gleak.metrics.score_table import LEVEL_COLUMNS
from gleak.studies.axis_labels import AxisLabels
from gleak.studies.figure_spec import Statistic
from tests.score_tables import Scored

HEADER = "figure,dataset,attack,defense,metric,statistic,value,note"


def add(
    scores: pd.DataFrame, path: Path, names: AxisLabels | None = None, statistic: Statistic = "mean"
) -> pd.DataFrame:
    """A summary of every metric with the values that a file publishes."""
    values = {level: tuple(scores[level].unique()) for level in LEVEL_COLUMNS}
    metrics = scores["metric"].unique()
    summaries = [summarise(scores, parse("metric", metric), statistic) for metric in metrics]
    cells = table_of(cells_of(scores))
    labels = AxisLabels.read(values) if names is None else names
    return add_published(pd.concat(summaries).merge(cells), read_published(path), labels)


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join([HEADER, *lines]) + "\n")
    return path


def test_specs_become_canonical(tmp_path: Path):
    table = read_published(
        write(tmp_path / "p.csv", "f,mnist,cpl,gaussian+std=1e-2,mse,mean,2e-4,x")
    )
    assert table.loc[0, "defense"] == parse("defense", "gaussian")
    assert table.loc[0, "value"] == 2e-4


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("f,mnits,cpl,none,mse,mean,1,", "line 2: unknown dataset 'mnits'; did you mean 'mnist'"),
        ("f,mnist,cpl,none,msee,mean,1,", "line 2: unknown metric 'msee'"),
        ("f,mnist,cpl,none,mse,mean,much,", "line 2: could not convert"),
    ],
)
def test_faults_name_file_and_line(tmp_path: Path, line: str, fault: str):
    path = write(tmp_path / "p.csv", line)
    with pytest.raises(SpecError, match=fault) as raised:
        read_published(path)
    assert str(path) in str(raised.value)


def test_a_value_given_twice_is_refused(tmp_path: Path):
    line = "f,mnist,cpl,none,mse,mean,{},"
    path = write(tmp_path / "p.csv", line.format(1), line.format(2))
    with pytest.raises(SpecError, match="line 3: this value is given twice"):
        read_published(path)


def test_unknown_columns_are_refused(tmp_path: Path):
    path = tmp_path / "p.csv"
    path.write_text(HEADER.replace("dataset", "datset") + "\n")
    with pytest.raises(SpecError, match="did you mean 'dataset'"):
        read_published(path)


def test_one_attack_has_a_value_for_each_crafting(tmp_path: Path, scored: Scored):
    path = tmp_path / "p.csv"
    lines = ["f,mkor,mkor,0.5,ssim,best,", "f,mkor+hiding=naive,mkor,0.75,ssim,best,"]
    header = "figure,crafting,attack,value,metric,statistic,note"
    path.write_text("\n".join([header, *lines, "f,,gm,0.25,ssim,best,"]) + "\n")
    cells = [("honest", "gm"), ("mkor+hiding=naive", "mkor"), ("mkor", "mkor"), ("mkor", "blind")]
    scores = pd.concat(scored("ssim", [[0.1]], crafting=c, attack=a) for c, a in cells)
    table = add(scores, path, statistic="best")
    assert table["published"].tolist()[:3] == [0.25, 0.75, 0.5]
    assert np.isnan(table["published"][3])


OTHER_METRIC = "published is lpips+net=alex, ours lpips"


@pytest.mark.parametrize(
    ("attack", "ours"),
    [
        ("cpl", {"lpips": (-1, OTHER_METRIC), "mse": (-1, "")}),
        ("cpl", {"lpips": (-1, ""), "lpips+net=alex": (0.25, "")}),
        ("dlg", {"lpips": (-1, "")}),
    ],
    ids=["another metric of the name", "its own metric", "another setting"],
)
def test_a_value_stands_only_beside_its_own_metric(
    tmp_path: Path, scored: Scored, attack: str, ours: dict[str, tuple[float, str]]
) -> None:
    path = write(tmp_path / "p.csv", f"f,,{attack},,lpips+net=alex,mean,0.25,")
    table = add(pd.concat([scored(metric, [[1.0]], attack="cpl") for metric in ours]), path)
    rows = table.fillna({"published": -1.0})[["metric", "published", "incomparable"]].to_numpy()
    assert {metric: (value, reason) for metric, value, reason in rows} == ours


def test_a_value_with_a_reason_is_not_compared(tmp_path: Path, scored: Scored) -> None:
    path = tmp_path / "p.csv"
    path.write_text("figure,metric,statistic,value,note,incomparable\nf,mse,mean,1,,on a GPU\n")
    table = add(scored("mse", [[1.0]], attack="cpl"), path)
    assert table["incomparable"].tolist() == ["on a GPU"]
    assert table["published"].isna().all()


def test_values_stand_beside_ours(tmp_path: Path, names: AxisLabels, scored: Scored):
    lines = "f,cifar10,cpl,,mse,mean,0.25,", "f,cifar10,dlg,none,mse,median,0.5,"
    cells = ("photos", "cpl+restarts=0"), ("photos", "dlg"), ("digits", "cpl+restarts=0")
    scores = pd.concat(scored("mse", [[1.0]], dataset=d, attack=a) for d, a in cells)
    table = add(scores, write(tmp_path / "p.csv", *lines), names)
    assert table["published"].tolist()[:1] == [0.25]
    assert np.isnan(table["published"][1:]).all()
    one_try = "cpl+restarts=0 for cpl"
    photos = "photos for cifar10"
    assert table["stand_in"].tolist() == [f"{photos}; {one_try}", photos, one_try]
