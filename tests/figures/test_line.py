from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from gleak.figures.base import Material
from gleak.figures.line_drawing import deviation, interval, summarise_controls, summarise_points
from gleak.figures.names import Names
from gleak.registry import find
from gleak.spec import build_spec

Scored = Callable[..., pd.DataFrame]
DEFENSES = {
    "none": [1.0, 0.8],
    "gaussian+std=1e-4": [0.9, 0.7],
    "gaussian": [0.1, 0.3],
    "laplace+std=1e-4": [0.6, 0.6],
}


def make(**fields: Any) -> Any:
    base = {"grid": "noise", "x": "defense.std", "y": "ssim", "hue": "defense.name"}
    return build_spec(find("figure", "line"), {**base, **fields})


@pytest.fixture
def material(scored: Scored, names: Names) -> Material:
    attacks = {"cpl+restarts=0": None, "blind": [0.2, 0.4], "truth": [1.0, 1.0]}
    tables = [
        scored("ssim", [[v] for v in fixed or values], defense=defense, attack=attack)
        for defense, values in DEFENSES.items()
        for attack, fixed in attacks.items()
    ]
    published = pd.DataFrame(
        {
            "figure": "noise",
            "defense": ["gaussian"],
            "metric": "ssim",
            "statistic": "mean",
            "value": [0.019],
            "note": "",
        }
    )
    values = {**names.values, "dataset": ("digits",)}
    return Material(pd.concat(tables), published, replace(names, values=values))


def test_points_equal_a_hand_computation(material: Material):
    points = summarise_points(make(), material)
    gaussian = points[points["hue"] == "Gaussian"]
    assert gaussian["x"].tolist() == [0.0, 1e-4, 1e-2]
    assert gaussian["ours"].tolist() == pytest.approx([0.9, 0.8, 0.2])
    assert gaussian["published"].tolist()[-1] == 0.019
    assert points["published"].notna().sum() == 1


def test_specs_without_the_field_of_x_start_every_line(material: Material):
    points = summarise_points(make(x_missing=1e-5), material)
    starts = points[points["defense"] == "none"]
    assert starts["hue"].tolist() == ["Gaussian", "laplace"]
    assert starts["x"].tolist() == [1e-5, 1e-5]


def test_controls_are_means_over_all_cells_and_no_points(material: Material):
    controls = summarise_controls(make(), material).set_index("attack")
    assert controls["ours"].to_dict() == pytest.approx({"blind": 0.3, "truth": 1.0})
    assert controls.loc["blind", "count"] == 8
    assert set(summarise_points(make(), material)["attack"]) == {"cpl+restarts=0"}


def test_samples_of_a_victim_are_averaged_before_the_band(scored: Scored, material: Material):
    scores = scored("ssim", [[0.0, 1.0], [0.4, 0.8]], attack="cpl+restarts=0")
    points = summarise_points(make(error="sd", hue=None), replace(material, scores=scores))
    spread = np.std([0.5, 0.6], ddof=1)
    assert points.loc[0, ["low", "high"]].tolist() == pytest.approx([0.55 - spread, 0.55 + spread])


def test_the_interval_is_that_of_the_mean():
    values = np.random.default_rng(1).normal(3.0, 2.0, size=400)
    low, high = interval(values)
    error = 1.96 * values.std(ddof=1) / math.sqrt(len(values))
    assert (low, high) == pytest.approx((values.mean() - error, values.mean() + error), abs=0.05)


@pytest.mark.parametrize("band", [interval, deviation])
def test_bands_of_one_value_and_of_equal_values(band: Callable):
    assert np.isnan(band(np.array([1.0]))).all()
    assert band(np.array([2.0, 2.0, 2.0])) == (2.0, 2.0)


@pytest.mark.parametrize(
    "fields",
    [
        {"x_scale": "symlog"},
        {"x_scale": "log", "x_missing": 1e-5},
        {"x": "defense", "hue": None},
        {"facets": "dataset", "hue": "defense.name"},
    ],
)
def test_figures_are_written_the_same_each_time(
    material: Material, tmp_path: Path, fields: dict[str, Any]
):
    figure = make(**fields)
    for name in ("first", "second"):
        figure.draw(material, tmp_path / name)
    for suffix in figure.suffixes:
        first, second = (tmp_path / f"{name}{suffix}" for name in ("first", "second"))
        assert first.read_bytes() == second.read_bytes()
    with Image.open(tmp_path / "first.png") as picture:
        assert picture.width > picture.height > 200


def test_the_table_beside_the_figure_holds_points_and_controls(material: Material, tmp_path: Path):
    make().draw(material, tmp_path / "noise")
    table = pd.read_csv(tmp_path / "noise.csv")
    assert table["attack"].value_counts().to_dict() == {"cpl+restarts=0": 5, "blind": 1, "truth": 1}
    low, ours, high = (table[column][:5] for column in ("low", "ours", "high"))
    assert ((low <= ours) & (ours <= high)).all()
