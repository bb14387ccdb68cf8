from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gleak.figures.intervals import mean_interval
from gleak.figures.kinds.plots import categories, deviation, summarise_controls, summarise_points
from gleak.studies.figure_spec import FigureData
from tests.score_tables import Scored, make_figure


def make(kind: str = "line", **fields: Any) -> Any:
    base = {"grid": "noise", "x": "defense.std", "y": "ssim", "hue": "defense.name"}
    return make_figure(kind, **{**base, **fields})


def test_points_equal_a_hand_computation(noise: FigureData):
    points = summarise_points(make(), noise)
    gaussian = points[points["hue"] == "Gaussian"]
    assert gaussian["x"].tolist() == [0.0, 1e-4, 1e-2]
    assert gaussian["ours"].tolist() == pytest.approx([0.9, 0.8, 0.2])
    assert gaussian["published"].tolist()[-1] == 0.019
    assert points["published"].notna().sum() == 1


def test_specs_without_the_field_of_x_stand_with_every_colour(noise: FigureData):
    points = summarise_points(make(x_missing=1e-5), noise)
    starts = points[points["defense"] == "none"]
    assert starts["hue"].tolist() == ["Gaussian", "laplace"]
    assert starts["x"].tolist() == [1e-5, 1e-5]


def test_without_any_other_cell_they_keep_their_own_colour(noise: FigureData):
    points = summarise_points(make(where={"defense": "none"}), noise)
    assert points["hue"].tolist() == ["none"]


def test_bars_call_specs_without_the_field_of_x_by_their_label(noise: FigureData):
    figure = make("bar")
    points = summarise_points(figure, noise)
    assert points["x"].tolist() == ["none", "1.0e-4", "0.01", "none", "1.0e-4"]
    assert list(categories(figure, noise.names, points)) == ["none", "1.0e-4", "0.01"]


def test_each_metric_is_taken_over_its_own_reconstructions(noise: FigureData):
    over = {"ssim": "successful_else_all"}
    points = summarise_points(make("bar", y=["ssim", "success_content"], over=over), noise)
    weak = points[(points["hue"] == "Gaussian") & (points["x"] != "none")]
    assert weak["shown"].tolist() == ["ssim", "ssim", "success_content", "success_content"]
    assert weak["ours"].tolist() == pytest.approx([0.9, 0.2, 0.5, 0.0])
    assert weak["failed"].tolist() == [False, True, False, False]


def test_bands_are_of_the_failed_where_none_succeeded(noise: FigureData):
    points = summarise_points(make(over="successful_else_all", error="sd"), noise)
    failed = points[points["failed"]].set_index("defense")
    assert list(failed.index) == ["gaussian", "laplace+std=1e-4"]
    spread = np.std([0.1, 0.3], ddof=1)
    band = failed.loc["gaussian", ["low", "high"]].tolist()
    assert band == pytest.approx([0.2 - spread, 0.2 + spread])


def test_controls_are_means_over_all_cells_and_no_points(noise: FigureData):
    controls = summarise_controls(make(), noise).set_index("attack")
    assert controls["ours"].to_dict() == pytest.approx({"blind": 0.3, "truth": 1.0})
    assert controls.loc["blind", "count"] == 8
    for axes in ({}, {"x": "attack"}, {"facets": "attack"}):
        figure = make(where={"defense": "none"}, **axes)
        assert set(summarise_points(figure, noise)["attack"]) == {"cpl+restarts=0"}


def test_controls_stand_in_every_panel_of_an_attack(noise: FigureData):
    controls = summarise_controls(make(facets="attack"), noise)
    assert controls.groupby("facet")["attack"].agg(set).to_dict() == {
        "CPL": {"blind", "truth"},
        "dlg": {"blind", "truth"},
    }


def test_samples_of_a_victim_are_averaged_before_the_band(scored: Scored, noise: FigureData):
    scores = scored("ssim", [[0.0, 1.0], [0.4, 0.8]], attack="cpl+restarts=0")
    points = summarise_points(make(error="sd", hue=None), replace(noise, scores=scores))
    spread = np.std([0.5, 0.6], ddof=1)
    assert points.loc[0, ["low", "high"]].tolist() == pytest.approx([0.55 - spread, 0.55 + spread])


@pytest.mark.parametrize("band", [mean_interval, deviation])
def test_bands_of_one_value_and_of_equal_values(band: Callable):
    assert np.isnan(band(np.array([1.0]))).all()
    assert band(np.array([2.0, 2.0, 2.0])) == (2.0, 2.0)


def test_panels_of_numbers_are_named_and_in_order(noise: FigureData):
    points = summarise_points(make(x="defense.name", hue=None, facets="defense.std"), noise)
    panels = points["facet"].drop_duplicates().tolist()
    assert set(panels) == {"std 0", "std 1.0e-4", "std 0.01"}
    assert panels[0] == "std 0"
