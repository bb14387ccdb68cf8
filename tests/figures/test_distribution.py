from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gleak.core.errors import SpecError
from gleak.core.registry import find
from gleak.core.spec import build_spec
from gleak.experiments.figure_spec import FigureData
from gleak.figures.distribution_drawing import spread
from gleak.metrics.score_table import LEVEL_COLUMNS

HEADER = "metric,x,hue,facet,q0.05,q0.25,q0.5,q0.75,q0.95,mean,count,rows,reason"


def make(**fields: Any) -> Any:
    base = {"grid": "noise", "x": "defense.std", "y": "ssim", "hue": "defense.name"}
    return build_spec(find("figure", "distribution"), {**base, **fields})


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"x": "defense", "hue": None},
        {"x": "attack", "hue": "defense", "facets": "dataset"},
    ],
)
def test_figures_are_written_the_same_each_time(
    draw_twice: Callable[[Any, FigureData], None], noise: FigureData, fields: dict[str, Any]
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
    noise: FigureData, scored: Callable[..., pd.DataFrame], tmp_path: Path
):
    values = {"none": [[0.5]], "gaussian": [[1.0] * 3] * 2, "laplace+std=1e-4": [[np.nan]]}
    tables = [
        scored("ssim", found, defense=defense, attack="cpl+restarts=0")
        for defense, found in values.items()
    ]
    make().draw(replace(noise, scores=pd.concat(tables)), tmp_path / "few")
    counts = pd.read_csv(tmp_path / "few.csv").groupby("defense")["count"].first()
    assert counts.to_dict() == {"gaussian": 6, "laplace+std=1e-4": 0, "none": 1}


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"y": "sssim"}, "unknown metric 'sssim'"),
        ({"x": "defence"}, "unknown axis 'defence'"),
        ({"x": "defense.name", "hue": None}, "several cells share a place"),
    ],
)
def test_what_the_grid_cannot_serve_is_refused(
    noise: FigureData, fields: dict[str, Any], fault: str
):
    rows = noise.scores[list(LEVEL_COLUMNS)].drop_duplicates().to_dict("records")
    with pytest.raises(SpecError, match=fault):
        make(**fields).check(noise.names, rows)


def test_bands_of_means_are_no_field_of_it():
    with pytest.raises(SpecError, match="unknown field 'error'"):
        make(error="sd")


@given(st.integers(1, 400))
def test_points_fill_their_place_evenly(count: int):
    places = np.sort(spread(count))
    assert (np.abs(places) <= 0.5).all()
    gaps = np.diff([-0.5, *places, 0.5])
    assert gaps.max() <= 3 / (count + 1)
