from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gleak.core.registry import find
from gleak.core.spec import build_spec
from gleak.experiments.figure_spec import FigureData
from gleak.figures.quantiles import (
    QUANTILES,
    place_values,
    summarise_control_means,
    summarise_quantiles,
)

Scored = Callable[..., pd.DataFrame]
VALUES = {
    "none": [[0.1, 0.2, 0.3, 0.4], [0.5, 0.6, 0.7, 0.8]],
    "gaussian": [[0.9, 0.0], [0.3, 0.3]],
}


def make(**fields: Any) -> Any:
    base = {"grid": "noise", "x": "defense", "y": "ssim"}
    return build_spec(find("figure", "distribution"), {**base, **fields})


@pytest.fixture
def material(noise: FigureData, scored: Scored) -> FigureData:
    """Values of two cells, and of the blind control in one of them."""
    attack = {"attack": "cpl+restarts=0"}
    tables = [scored("ssim", found, defense=name, **attack) for name, found in VALUES.items()]
    lost = scored("ssim", [[np.nan]], status="unmatched", defense="none", **attack)
    blind = scored("ssim", [[0.1, 0.3]], attack="blind")
    return replace(noise, scores=pd.concat([*tables, lost, blind]))


def test_quantiles_equal_those_of_numpy(material: FigureData):
    boxes = summarise_quantiles(make(), material).set_index("defense")
    for name, found in VALUES.items():
        values = np.ravel(found)
        expected = np.quantile(values, list(QUANTILES.values()))
        assert boxes.loc[name, list(QUANTILES)].tolist() == pytest.approx(list(expected))
        assert boxes.loc[name, "mean"] == pytest.approx(values.mean())
        assert boxes.loc[name, "count"] == len(values)
    assert boxes["rows"].to_dict() == {"none": 9, "gaussian": 4}


def test_a_cell_without_values_has_a_place_and_no_quantiles(material: FigureData, scored: Scored):
    lost = scored("ssim", [[np.nan]], status="unavailable", defense="laplace+std=1e-4")
    cells = pd.concat([material.scores, lost.assign(attack="cpl+restarts=0")])
    boxes = summarise_quantiles(make(), replace(material, scores=cells)).set_index("defense")
    assert boxes.loc["laplace+std=1e-4", "count"] == 0
    assert boxes.loc["laplace+std=1e-4", [*QUANTILES, "mean"]].isna().all()


def test_specs_without_the_field_of_x_stand_with_every_colour(noise: FigureData):
    boxes = summarise_quantiles(make(x="defense.std", hue="defense.name"), noise)
    starts = boxes[boxes["defense"] == "none"]
    assert starts[["x", "hue"]].to_numpy().tolist() == [["none", "Gaussian"], ["none", "laplace"]]


def test_every_value_stands_beside_its_box(material: FigureData):
    figure = make()
    placed = place_values(figure, material, summarise_quantiles(figure, material))
    found = {key: values.tolist() for key, values in placed.items()}
    assert found == {
        ("none", "", ""): np.ravel(VALUES["none"]).tolist(),
        ("Gaussian (std=0.01)", "", ""): np.ravel(VALUES["gaussian"]).tolist(),
    }


def test_controls_are_means(material: FigureData):
    (control,) = summarise_control_means(make(), material).to_dict("records")
    assert (control["attack"], control["mean"], control["count"]) == ("blind", 0.2, 2)
