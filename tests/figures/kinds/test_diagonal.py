from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gleak.studies.figure_spec import FigureData
from tests.score_tables import DrawTwice, Scored, make_figure


def make(**fields: Any) -> Any:
    base = {"grid": "noise", "x": "psnr", "y": "ssim", "points": "defense", "hue": "attack"}
    return make_figure("diagonal", **{**base, **fields})


@pytest.fixture
def both(noise: FigureData, scored: Scored) -> FigureData:
    """Scores of two metrics, of which the second is missing for one cell."""
    found = {"none": (3.0, 1.0), "gaussian": (2.0, 2.5), "laplace+std=1e-4": (1.0, np.nan)}
    tables = [
        scored(metric, [[value]], defense=defense, attack="cpl+restarts=0")
        for defense, pair in found.items()
        for metric, value in zip(("psnr", "ssim"), pair, strict=True)
    ]
    return replace(noise, scores=pd.concat(tables))


@pytest.mark.parametrize("fields", [{}, {"hue": "defense.name", "facets": "dataset"}])
def test_figures_are_written_the_same_each_time(
    draw_twice: DrawTwice, both: FigureData, fields: dict[str, Any]
):
    draw_twice(make(**fields), both)


def test_each_cell_has_both_of_its_numbers(both: FigureData, tmp_path: Path):
    make().draw(both, tmp_path / "pairs")
    table = pd.read_csv(tmp_path / "pairs.csv").set_index("defense")
    assert table.loc["none", ["x", "y"]].tolist() == [3, 1]
    assert table.loc["gaussian", ["x", "y"]].tolist() == [2, 2.5]
    assert np.isnan(table.loc["laplace+std=1e-4", "y"])
