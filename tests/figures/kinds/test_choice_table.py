from __future__ import annotations

from math import nan
from pathlib import Path

import pandas as pd
import pytest

from gleak.core.errors import SpecError
from gleak.metrics.score_table import REFUSED
from gleak.studies.axis_labels import AxisLabels
from gleak.studies.figure_spec import FigureData
from tests.score_tables import DrawTwice, Scored, make_figure, read_page

FIELDS = {"grid": "defences", "rows": ["dataset"], "columns": ["defense"]}


@pytest.fixture
def material(scored: Scored, names: AxisLabels, nothing_published: pd.DataFrame) -> FigureData:
    """Three attacks, one of which proposed something for all victims, and was never chosen."""
    tables = [
        scored("chosen+attack=cpl", [1.0, 1.0, nan], dataset="digits", attack="dlg"),
        scored("chosen+attack=aono", [nan, 0.0, 1.0], dataset="digits", attack="dlg"),
        scored("chosen+attack=agic", [0.0, 0.0, 0.0], dataset="digits", attack="dlg"),
        scored("mse", [0.1], dataset="photos", attack="dlg"),
        scored("mse", [0.1], dataset="photos", attack="blind"),
        scored("chosen+attack=aono", [1.0], dataset="photos", attack="dlg", defense="gaussian"),
        scored("", [nan], REFUSED, dataset="digits", attack="dlg", defense="gaussian").assign(
            reason="too noisy"
        ),
    ]
    return FigureData(pd.concat(tables), nothing_published, names)


def test_attacks_are_counted_where_they_were_chosen(material: FigureData, tmp_path: Path):
    make_figure("choices", **FIELDS).draw(material, tmp_path / "table")
    rows, below = read_page(tmp_path / "table.html")
    assert rows == [
        ["dataset", "none", "Gaussian (std=0.01)"],
        ["photos (for CIFAR-10)", "–", "aono 1/1"],
        ["digits", "CPL 2/2, aono 1/2", "n/a"],
    ]
    assert below.splitlines() == ["– no candidates.", "n/a too noisy."]
    table = pd.read_csv(tmp_path / "table.csv")
    counts = table[(table["dataset"] == "digits") & (table["defense"] == "none")]
    counts = counts.set_index("member")[["chosen", "proposed"]]
    assert counts.T.to_dict("list") == {"cpl": [2, 2], "aono": [1, 2], "agic": [0, 3]}


def test_equal_scores_give_equal_bytes(material: FigureData, draw_twice: DrawTwice):
    draw_twice(make_figure("choices", **FIELDS), material)


def test_cells_that_share_a_place_are_refused(material: FigureData):
    figure = make_figure("choices", **{**FIELDS, "columns": ["client"]})
    cells = list(material.scores["cell"].unique())
    with pytest.raises(SpecError, match="defense varies and is no axis"):
        figure.check(material.names, cells)
