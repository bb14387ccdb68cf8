from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gleak.core.errors import SpecError
from gleak.figures.kinds.tradeoff import counted, frontier, tabulate_points
from gleak.studies.axis_labels import AxisLabels
from gleak.studies.cell import Cell, levels_of
from gleak.studies.figure_spec import FigureData
from tests.score_tables import DrawTwice, MakeCell, Scored, make_figure, published_values, read_cell

DEFENSES = ("none", "gaussian")
MODELS = ("lenet", "lenet+precode=8")
PAIRS = [("none", "lenet"), ("gaussian", "lenet"), ("none", "lenet+precode=8")]
JOINED = {"defense": "training.defense", "model.precode": "model.precode"}
AFTER = ("crafting", "client", "defense", "attack")


def make(**fields: Any) -> Any:
    base = {"grid": "attacks", "models": "models", "joined": JOINED, "privacy": "mse"}
    return make_figure("tradeoff", **{**base, **fields})


def trained(defense: str, model: str, cell: MakeCell) -> Cell:
    training = "federated" if defense == "none" else f"federated+defense={defense}"
    return cell(model=model, training=training, dataset="photos", **dict.fromkeys(AFTER, ""))


@pytest.fixture
def grids(names: AxisLabels, cell: MakeCell) -> list[tuple[AxisLabels, list[Cell]]]:
    """Two attacks under a defence, none, and a network that defends itself; and the models."""
    values = {**names.values, "model": MODELS, "defense": DEFENSES, "attack": ("cpl", "dlg")}
    attacks = AxisLabels.read(values, labels={"lenet+precode=8": "PRECODE", "cpl": "CPL"})
    rows = [
        cell(defense=defense, model=model, attack=attack)
        for defense, model in PAIRS
        for attack in ("cpl", "dlg")
    ]
    models = [trained(*pair, cell) for pair in PAIRS]
    kept = {lv: tuple({str(one.specs[lv]) for one in models}) for lv in ("dataset", "model")}
    trainings = ("federated", "federated+defense=gaussian")
    return [(attacks, rows), (AxisLabels.read({**kept, "training": trainings}), models)]


@pytest.fixture
def material(grids: list[tuple[AxisLabels, list[Cell]]], scored: Scored) -> FigureData:
    """Error 0.1, 0.2 and so on of attacks, accuracy 0.9, 0.8 and 0.7 of models."""
    (names, rows), (_, models) = grids
    errors = [
        scored("mse", [[k / 10, k / 10]], **levels_of(cell)) for k, cell in enumerate(rows, 1)
    ]
    accuracies = [
        scored("test_accuracy", [0.9 - k / 10], **levels_of(cell)) for k, cell in enumerate(models)
    ]
    paper = {"defense": "gaussian", "attack": "cpl", "metric": "mse", "value": 0.35}
    return FigureData(pd.concat([*errors, *accuracies]), published_values(paper), names)


def test_files_are_the_same_each_time(material: FigureData, draw_twice: DrawTwice):
    draw_twice(make(circled={"attack": "dlg", "defense": "none"}), material)


def test_each_attacked_cell_has_the_utility_of_its_own_model(material: FigureData):
    points = tabulate_points(make(circled={"attack": "dlg", "model": "lenet"}), material)
    assert points["privacy"].tolist() == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    assert points["utility"].tolist() == pytest.approx([0.9, 0.9, 0.8, 0.8, 0.7, 0.7])
    assert points["point"].tolist() == ["none"] * 2 + ["gaussian"] * 2 + ["PRECODE"] * 2
    assert points["hue"].tolist() == ["CPL", "dlg"] * 3
    assert points["circled"].tolist() == [False, True, False, True, False, False]
    assert points["published"].dropna().to_dict() == {2: 0.35}


@pytest.fixture
def several(material: FigureData, scored: Scored) -> FigureData:
    """The same with four victims and four networks each, sizes of updates, and blind."""
    names = AxisLabels.read(
        {**material.names.values, "attack": ("cpl", "dlg", "blind")}, labels=material.names.labels
    )
    rows = material.scores.drop_duplicates([*levels_of(material.scores["cell"].iloc[0])])
    tables = []
    for row in rows.to_dict("records"):
        levels, spread = levels_of(row["cell"]), (-0.02, -0.01, 0.01, 0.02)
        values: list[Any] = [row["value"] + step for step in spread]
        one_each = row["metric"] == "test_accuracy"
        tables.append(
            scored(row["metric"], values if one_each else [[v] for v in values], **levels)
        )
        if one_each:
            continue
        tables.append(scored("sent_kilobytes", [10.0 * row["value"]] * 4, **levels))
        tables.append(scored("mse", [[0.45]] * 4, **{**levels, "attack": "blind"}))
    return replace(material, scores=pd.concat(tables), names=names)


def test_points_have_intervals_the_size_of_the_update_and_the_control(several: FigureData) -> None:
    points = tabulate_points(make(area="sent_kilobytes", facets="model"), several)
    assert points["facet"].tolist() == ["lenet (precode=0)"] * 4 + ["PRECODE"] * 2
    assert points["point"].tolist() == ["none"] * 2 + ["gaussian"] * 2 + ["none"] * 2
    assert points["area"].tolist() == pytest.approx([1, 2, 3, 4, 5, 6])
    assert points["blind"].tolist() == pytest.approx([0.45] * 6)
    for column in ("privacy", "utility"):
        low, mean, high = (points[f"{column}{end}"] for end in ("_low", "", "_high"))
        assert ((low < mean) & (mean < high)).all()


def test_panels_are_the_same_each_time_and_say_what_their_largest_point_is(
    several: FigureData, draw_twice: DrawTwice, tmp_path: Path
) -> None:
    figure = make(area="sent_kilobytes", facets="model")
    draw_twice(figure, several)
    figure.draw(several, tmp_path / "a")
    text = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert "at most 4" in text
    assert "at most 6" in text


def test_a_metric_without_values_leaves_points_out_and_draws_the_rest(
    material: FigureData, tmp_path: Path
):
    missing = material.scores["metric"] == "mse"
    scores = material.scores.assign(value=material.scores["value"].mask(missing))
    make().draw(replace(material, scores=scores), tmp_path / "a")
    assert pd.read_csv(tmp_path / "a.csv")["privacy"].isna().all()
    assert "mse could not be computed here" in (tmp_path / "a.svg").read_text()


def test_controls_are_left_out_and_models_are_not(grids: list[tuple[AxisLabels, list[Cell]]]):
    (names, rows), (models, trained_rows) = grids
    figure = make()
    figure.check_together(grids)
    blind = read_cell({**levels_of(rows[0]), "attack": "blind"})
    assert figure.chosen(names, [*rows, blind]) == rows
    assert figure.chosen(models, trained_rows) == trained_rows


@pytest.mark.parametrize(
    ("fields", "keep", "fault"),
    [
        ({}, slice(2), "0 models of grid 'models' are joined with cells of defense none, model.p"),
        ({"joined": {**JOINED, "model": "training"}}, slice(None), "0 models of grid 'models'"),
        ({"joined": {"defense": "training.defence"}}, slice(None), "did you mean 'defense'"),
        ({"utility": "mse"}, slice(None), "metric 'mse' is of cells that end with attack"),
        ({"privacy": "test_accuracy"}, slice(None), "'test_accuracy' is of cells that end with tr"),
        ({"circled": {"attack": "cpa"}}, slice(None), "the grid has no attack 'cpa'"),
    ],
)
def test_faults_are_named(
    grids: list[tuple[AxisLabels, list[Cell]]], fields: dict[str, Any], keep: slice, fault: str
):
    (names, rows), (models, trained_rows) = grids
    if fields.get("joined", JOINED).keys() == {"defense"}:
        rows = rows[:4]
    with pytest.raises(SpecError, match=fault):
        make(**fields).check_together([(names, rows), (models, trained_rows[keep])])


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), max_size=8))
def test_the_frontier_is_above_and_right_of_every_point(points: list[tuple[float, float]]):
    found = frontier(points)
    assert set(found) <= set(points)
    assert all(any(x <= a and y <= b for a, b in found) for x, y in points)
    assert all(a[0] < b[0] and a[1] > b[1] for a, b in pairwise(found))


@pytest.mark.parametrize(
    ("sign", "expected"), [(1, [1.0, 2.0, 2.0, 5.0]), (-1, [-2.0, -2.0, -3.0, -5.0])]
)
def test_privacy_beyond_blind_counts_as_blind(sign: int, expected: list[float]):
    points = pd.DataFrame({"privacy": [1.0, 2.0, 3.0, 5.0], "blind": [2.0, 2.0, 2.0, math.nan]})
    assert counted(points, sign).tolist() == expected
