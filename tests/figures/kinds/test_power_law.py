from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from gleak.core.errors import SpecError
from gleak.figures.kinds.plots import summarise_points
from gleak.figures.statistics import cells_of
from gleak.studies.figure_spec import FigureData
from tests.score_tables import DrawTwice, Scored, make_figure


def make(**fields: Any) -> Any:
    base = {"grid": "noise", "x": "defense.std", "y": "psnr", "power": -0.5, "hue": "attack"}
    return make_figure("power_law", **{**base, **fields})


@pytest.fixture
def falling(noise: FigureData, scored: Scored) -> FigureData:
    found = {"none": 4.0, "gaussian": 2.0, "laplace+std=1e-4": 1.0}
    tables = [
        scored(
            "psnr",
            [[value], [value + 0.1], [value - 0.1]],
            defense=defense,
            attack="cpl+restarts=0",
        )
        for defense, value in found.items()
    ]
    return replace(noise, scores=pd.concat(tables))


def test_figures_are_written_the_same_each_time(draw_twice: DrawTwice, falling: FigureData):
    draw_twice(make(), falling)


def test_specs_without_the_field_stand_at_the_given_place(falling: FigureData):
    points = summarise_points(make(x_missing=3), falling).set_index("defense")
    assert points.loc["none", "x"] == 3
    assert points.loc["gaussian", ["x", "ours"]].tolist() == [0.01, 2]


def test_the_law_goes_through_the_first_point(falling: FigureData, tmp_path: Path):
    make(x_missing=1e-5).draw(falling, tmp_path / "law")
    assert "x to the power of -0.5 through the first point" in make().reading
    assert len(pd.read_csv(tmp_path / "law.csv")) == 3


def test_an_axis_without_numbers_is_refused_before_anything_is_drawn(falling: FigureData):
    with pytest.raises(SpecError, match="defense of none is no number above 0"):
        make(x="defense").check(falling.names, cells_of(falling.scores))
