from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from PIL import Image

from gleak.core.errors import SpecError
from gleak.studies.figure_spec import FigureData
from tests.score_tables import DrawTwice, make_figure

BOTH = ["ssim", "success_content"]
FIELDS = {"grid": "noise", "x": "defense.std", "y": "ssim", "hue": "defense.name"}


def make_bar(**fields: Any) -> Any:
    return make_figure("bar", **{**FIELDS, **fields})


@pytest.mark.parametrize(
    "fields",
    [
        {"y": BOTH, "over": {"ssim": "successful_else_all"}},
        pytest.param(
            {"y": BOTH, "over": {"ssim": "successful"}, "log": ["ssim"]}, marks=pytest.mark.slow
        ),
        pytest.param({"x": "defense", "hue": None}, marks=pytest.mark.slow),
        {"x": "attack", "hue": "defense", "facets": "dataset", "error": "sd"},
    ],
)
def test_bars_are_written_the_same_each_time(
    draw_twice: DrawTwice, noise: FigureData, fields: dict[str, Any]
):
    draw_twice(make_bar(**fields), noise)


def test_metrics_stand_below_each_other(noise: FigureData, tmp_path: Path):
    heights = []
    for y in ("ssim", BOTH):
        make_bar(y=y).draw(noise, tmp_path / "figure")
        with Image.open(tmp_path / "figure.png") as picture:
            heights.append(picture.height)
    assert heights[1] > 1.4 * heights[0]


def test_the_table_beside_bars_has_every_metric(noise: FigureData, tmp_path: Path):
    make_bar(y=BOTH, over={"ssim": "successful"}).draw(noise, tmp_path / "noise")
    table = pd.read_csv(tmp_path / "noise.csv").set_index(["metric", "attack", "x", "hue"])
    assert table.loc[("ssim", "cpl+restarts=0", "1.0e-4", "Gaussian"), "ours"].item() == 0.9
    assert table.loc[("success_content", "cpl+restarts=0", "0.01", "Gaussian"), "ours"].item() == 0
    assert pd.isna(table.loc[("ssim", "cpl+restarts=0", "0.01", "Gaussian"), "ours"].item())
    assert table["published"].notna().sum() == 1


def test_zeros_have_no_place_on_a_logarithmic_scale_and_stop_nothing(
    noise: FigureData, tmp_path: Path
):
    scores = noise.scores.assign(value=0.0)
    make_bar(log=["ssim"]).draw(replace(noise, scores=scores), tmp_path / "zeros")
    assert (pd.read_csv(tmp_path / "zeros.csv")["ours"] == 0).all()


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"y": ["mse", "mse"]}, "repeats a metric"),
        ({"log": ["mse"]}, r"\['mse'\], which are not in y"),
        ({"over": {"mse": "successful"}}, r"\['mse'\], which are not in y"),
    ],
)
def test_what_cannot_be_shown_is_refused(fields: dict[str, Any], fault: str):
    with pytest.raises(SpecError, match=fault):
        make_bar(**fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"x_scale": "symlog"},
        pytest.param({"x_scale": "log", "x_missing": 1e-5}, marks=pytest.mark.slow),
        pytest.param({"x": "defense", "hue": None}, marks=pytest.mark.slow),
        {"facets": "dataset", "hue": "defense.name"},
        pytest.param({"over": "successful_else_all"}, marks=pytest.mark.slow),
    ],
)
def test_lines_are_written_the_same_each_time(
    draw_twice: DrawTwice, noise: FigureData, fields: dict[str, Any]
):
    draw_twice(make_figure("line", **{**FIELDS, **fields}), noise)


def test_the_table_beside_lines_holds_points_and_controls(noise: FigureData, tmp_path: Path):
    make_figure("line", **FIELDS, error="sd").draw(noise, tmp_path / "noise")
    table = pd.read_csv(tmp_path / "noise.csv")
    assert table["attack"].value_counts().to_dict() == {"cpl+restarts=0": 5, "blind": 1, "truth": 1}
    low, ours, high = (table[column][:5] for column in ("low", "ours", "high"))
    assert ((low <= ours) & (ours <= high)).all()
    assert not table["failed"].any()
