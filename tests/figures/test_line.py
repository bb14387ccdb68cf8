from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from gleak.core.registry import find
from gleak.core.spec import build_spec
from gleak.experiments.figure_spec import FigureData


def make(**fields: Any) -> Any:
    base = {"grid": "noise", "x": "defense.std", "y": "ssim", "hue": "defense.name"}
    return build_spec(find("figure", "line"), {**base, **fields})


@pytest.mark.parametrize(
    "fields",
    [
        {"x_scale": "symlog"},
        {"x_scale": "log", "x_missing": 1e-5},
        {"x": "defense", "hue": None},
        {"facets": "dataset", "hue": "defense.name"},
        {"over": "successful_else_all"},
    ],
)
def test_figures_are_written_the_same_each_time(
    draw_twice: Callable[[Any, FigureData], None], noise: FigureData, fields: dict[str, Any]
):
    draw_twice(make(**fields), noise)


def test_the_table_beside_the_figure_holds_points_and_controls(noise: FigureData, tmp_path: Path):
    make().draw(noise, tmp_path / "noise")
    table = pd.read_csv(tmp_path / "noise.csv")
    assert table["attack"].value_counts().to_dict() == {"cpl+restarts=0": 5, "blind": 1, "truth": 1}
    low, ours, high = (table[column][:5] for column in ("low", "ours", "high"))
    assert ((low <= ours) & (ours <= high)).all()
    assert not table["failed"].any()
