from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gleak.artifacts.reconstruction import Reconstruction
from gleak.core.errors import IncompatibleError, SpecError
from gleak.core.registry import find
from gleak.core.spec import build_spec
from gleak.experiments.figure_spec import FigureData, FigureSpec, Shown
from gleak.experiments.labels import AxisLabels
from gleak.figures.traces_drawing import tabulate_traces

FALLING = np.array([[1.0, 0.5, 0.25], [1.0, 0.1, 0.01], [1.0, 0.3, 0.1]])


def make(**fields: Any) -> Any:
    return build_spec(find("figure", "traces"), {"grid": "attacks", **fields})


@pytest.fixture
def traced(shown: Callable[..., Shown]) -> Callable[..., Shown]:
    """A cell with the objective of its 3 victims at iterations 0, 10 and 20."""

    def trace(scale: float = 1.0, **levels: str) -> Shown:
        cell = shown(**levels)
        found = Reconstruction.read(cell.reconstruction)
        books = {"trace_iteration": np.array([0, 10, 20]), "trace_objective": scale * FALLING}
        replace(found, **books).write(cell.reconstruction)
        return cell

    return trace


@pytest.fixture
def material(
    traced: Callable[..., Shown], names: AxisLabels, nothing_published: pd.DataFrame
) -> FigureData:
    cells = [traced(), traced(0.1, attack="dlg"), traced(0.01, defense="gaussian")]
    return FigureData(pd.DataFrame(), nothing_published, names, cells)


def test_files_are_the_same_each_time(
    material: FigureData, draw_twice: Callable[[FigureSpec, FigureData], None]
):
    draw_twice(make(facets="defense"), material)


def test_a_curve_is_the_mean_of_the_victims_between_the_best_and_the_worst(material: FigureData):
    table = tabulate_traces(make(facets="defense"), material)
    first = table[(table["hue"] == "CPL") & (table["facet"] == "none")]
    assert first["iteration"].tolist() == [0, 10, 20]
    np.testing.assert_allclose(first["mean"], FALLING.mean(axis=0))
    assert first[["low", "high"]].to_numpy().tolist() == [[1, 1], [0.1, 0.5], [0.01, 0.25]]
    assert set(first["victims"]) == {3}
    assert table.groupby(["hue", "facet"], sort=False).ngroups == 3


def test_an_attack_that_kept_no_trace_is_named(
    shown: Callable[..., Shown], names: AxisLabels, nothing_published: pd.DataFrame
):
    material = FigureData(pd.DataFrame(), nothing_published, names, [shown()])
    with pytest.raises(IncompatibleError, match=r"reconstruction.h5: its attack kept no trace"):
        tabulate_traces(make(), material)


def test_attacks_without_iterations_are_refused_and_controls_left_out(
    names: AxisLabels, cell: Callable[..., dict[str, str]]
):
    rows = [cell(attack=attack) for attack in ("cpl+restarts=0", "blind", "truth")]
    make().check(names, rows)
    assert make().chosen(names, rows) == rows[:1]
    with pytest.raises(SpecError, match="attack 'aono' has no iterations to trace"):
        make().check(names, [*rows, cell(attack="aono")])


def test_cells_of_one_colour_are_refused(names: AxisLabels, cell: Callable[..., dict[str, str]]):
    rows = [cell(defense=defense) for defense in ("none", "gaussian")]
    make(facets="defense").check(names, rows)
    with pytest.raises(SpecError, match="several cells share a place: defense varies"):
        make().check(names, rows)
