from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from gleak.figures.kinds.heatmap import tabulate_tiles
from gleak.figures.published import empty_published
from gleak.studies.axis_labels import AxisLabels
from gleak.studies.figure_spec import FigureData
from tests.score_tables import DrawTwice, Scored, make_figure

DEFENSES = ("none", "gaussian", "topk")
MODELS = ("lenet", "fc2")
ERRORS = {("none", "lenet"): 0.1, ("gaussian", "lenet"): 0.7, ("none", "fc2"): 0.3}


def make(**fields: Any) -> Any:
    base = {"grid": "attacks", "x": "model", "y": "defense", "metric": "mse"}
    return make_figure("heatmap", **{**base, **fields})


@pytest.fixture
def material(names: AxisLabels, scored: Scored) -> FigureData:
    """Of four victims each; blind has an error of 0.5, and top-k has no value."""
    values = {**names.values, "model": MODELS, "defense": DEFENSES, "attack": ("cpl", "blind")}
    labels = AxisLabels.read(values, labels={"lenet": "LeNet"})
    tables = []
    for (defense, model), error in ERRORS.items():
        levels = {"defense": defense, "model": model}
        spread = [[error + step] for step in (-0.02, -0.01, 0.01, 0.02)]
        tables.append(scored("mse", spread, attack="cpl", **levels))
        tables.append(scored("mse", [[0.5]] * 4, attack="blind", **levels))
    tables.append(scored("mse", [[math.nan]], attack="cpl", defense="topk", model="lenet"))
    return FigureData(pd.concat(tables), empty_published(), labels)


def test_tiles_are_means_with_intervals_where_the_study_has_them(material: FigureData) -> None:
    tiles = tabulate_tiles(make(), material).set_index(["y", "x"])
    assert set(tiles.index) == {
        ("none", "LeNet"),
        ("gaussian", "LeNet"),
        ("none", "fc2"),
        ("topk", "LeNet"),
    }
    for (defense, model), error in ERRORS.items():
        tile = tiles.loc[(defense, "LeNet" if model == "lenet" else model)]
        assert tile["ours"] == pytest.approx(error)
        assert tile["low"] < error < tile["high"]


def test_rows_are_in_order_and_means_that_are_worse_than_blind_are_marked(
    material: FigureData, tmp_path: Path
) -> None:
    tiles = tabulate_tiles(make(), material)
    assert tiles.loc[tiles["worse"], ["y", "x"]].to_numpy().tolist() == [["gaussian", "LeNet"]]
    make().draw(material, tmp_path / "a")
    text = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert "<!-- 0.7 ▾ -->" in text
    places = [text.index(f"<!-- {label} -->") for label in DEFENSES]
    assert places == sorted(places)


@pytest.mark.parametrize("fields", [{}, {"facets": "model", "x": "dataset"}, {"limits": [0, 0.2]}])
def test_files_are_the_same_each_time(
    draw_twice: DrawTwice, material: FigureData, fields: dict[str, Any]
) -> None:
    draw_twice(make(**fields), material)


def test_a_metric_without_any_value_is_said_to_have_none(
    material: FigureData, tmp_path: Path
) -> None:
    nothing = replace(material, scores=material.scores.assign(value=math.nan))
    make().draw(nothing, tmp_path / "a")
    assert "mse could not be computed here" in (tmp_path / "a.svg").read_text(encoding="utf-8")
