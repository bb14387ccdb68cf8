from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gleak.figures.kinds.distribution import (
    QUANTILES,
    place_values,
    spread,
    summarise_control_means,
    summarise_quantiles,
)
from gleak.metrics.score_table import LEVEL_COLUMNS
from gleak.studies.figure_spec import FigureData
from tests.score_tables import DrawTwice, Scored, make_figure

HEADER = "metric,x,hue,facet,q0.05,q0.25,q0.5,q0.75,q0.95,mean,count,rows,reason"


def make(**fields: Any) -> Any:
    base = {"grid": "noise", "x": "defense.std", "y": "ssim", "hue": "defense.name"}
    return make_figure("distribution", **{**base, **fields})


@pytest.mark.parametrize(
    "fields",
    [
        {},
        pytest.param({"x": "defense", "hue": None}, marks=pytest.mark.slow),
        {"x": "attack", "hue": "defense", "facets": "dataset"},
    ],
)
def test_figures_are_written_the_same_each_time(
    draw_twice: DrawTwice, noise: FigureData, fields: dict[str, Any]
):
    draw_twice(make(**fields), noise)


def test_the_table_beside_the_figure_holds_boxes_and_controls(noise: FigureData, tmp_path: Path):
    make().draw(noise, tmp_path / "noise")
    lines = (tmp_path / "noise.csv").read_text().splitlines()
    assert lines[0] == ",".join([*LEVEL_COLUMNS, HEADER])
    table = pd.read_csv(tmp_path / "noise.csv").set_index(["attack", "x", "hue"])
    box = table.loc[("cpl+restarts=0", "0.01", "Gaussian")]
    assert box[["q0.05", "q0.5", "q0.95", "mean"]].tolist() == pytest.approx([0.11, 0.2, 0.29, 0.2])
    assert table.groupby("attack").size().to_dict() == {"cpl+restarts=0": 5, "blind": 1, "truth": 1}


def test_a_single_value_equal_values_and_none_are_drawn(
    noise: FigureData, scored: Scored, tmp_path: Path
):
    values = {"none": [[0.5]], "gaussian": [[1.0] * 3] * 2, "laplace+std=1e-4": [[np.nan]]}
    tables = [
        scored("ssim", found, defense=defense, attack="cpl+restarts=0")
        for defense, found in values.items()
    ]
    make().draw(replace(noise, scores=pd.concat(tables)), tmp_path / "few")
    counts = pd.read_csv(tmp_path / "few.csv").groupby("defense")["count"].first()
    assert counts.to_dict() == {"gaussian": 6, "laplace+std=1e-4": 0, "none": 1}


@given(st.integers(1, 400))
def test_points_fill_their_place_evenly(count: int):
    places = np.sort(spread(count))
    assert (np.abs(places) <= 0.5).all()
    gaps = np.diff([-0.5, *places, 0.5])
    assert gaps.max() <= 3 / (count + 1)


VALUES = {
    "none": [[0.1, 0.2, 0.3, 0.4], [0.5, 0.6, 0.7, 0.8]],
    "gaussian": [[0.9, 0.0], [0.3, 0.3]],
}


OF_DEFENSES = make(x="defense", hue=None)


@pytest.fixture
def material(noise: FigureData, scored: Scored) -> FigureData:
    """Values of two cells, and of the blind control in one of them."""
    attack = {"attack": "cpl+restarts=0"}
    tables = [scored("ssim", found, defense=name, **attack) for name, found in VALUES.items()]
    lost = scored("ssim", [[np.nan]], status="unmatched", defense="none", **attack)
    blind = scored("ssim", [[0.1, 0.3]], attack="blind")
    return replace(noise, scores=pd.concat([*tables, lost, blind]))


def test_quantiles_equal_those_of_numpy(material: FigureData):
    boxes = summarise_quantiles(OF_DEFENSES, material).set_index("defense")
    for name, found in VALUES.items():
        values = np.ravel(found)
        expected = np.quantile(values, list(QUANTILES.values()))
        assert boxes.loc[name, list(QUANTILES)].tolist() == pytest.approx(list(expected))
        assert boxes.loc[name, "mean"] == pytest.approx(values.mean())
        assert boxes.loc[name, "count"] == len(values)
    assert boxes["rows"].to_dict() == {"none": 9, "gaussian": 4}


def test_a_cell_without_values_has_a_place_and_no_quantiles(material: FigureData, scored: Scored):
    levels = {"defense": "laplace+std=1e-4", "attack": "cpl+restarts=0"}
    lost = scored("ssim", [[np.nan]], status="unavailable", **levels)
    cells = pd.concat([material.scores, lost])
    boxes = summarise_quantiles(OF_DEFENSES, replace(material, scores=cells)).set_index("defense")
    assert boxes.loc["laplace+std=1e-4", "count"] == 0
    assert boxes.loc["laplace+std=1e-4", [*QUANTILES, "mean"]].isna().all()


def test_every_value_stands_beside_its_box(material: FigureData):
    placed = place_values(OF_DEFENSES, material, summarise_quantiles(OF_DEFENSES, material))
    found = {key: values.tolist() for key, values in placed.items()}
    assert found == {
        ("none", "", ""): np.ravel(VALUES["none"]).tolist(),
        ("Gaussian (std=0.01)", "", ""): np.ravel(VALUES["gaussian"]).tolist(),
    }


def test_controls_are_means(material: FigureData):
    (control,) = summarise_control_means(OF_DEFENSES, material).to_dict("records")
    assert (control["attack"], control["mean"], control["count"]) == ("blind", 0.2, 2)
