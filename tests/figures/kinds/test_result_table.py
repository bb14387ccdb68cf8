from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from PIL import Image

from gleak.core.errors import SpecError
from gleak.core.registry import find
from gleak.core.spec import build_spec
from gleak.figures.kinds.result_table import Table
from gleak.studies.axis_labels import AxisLabels
from gleak.studies.cell import Cell
from gleak.studies.figure_spec import FigureData
from tests.score_tables import with_specs

Scored = Callable[..., pd.DataFrame]
FIELDS = {
    "grid": "attacks",
    "rows": ["dataset", "metric"],
    "columns": ["attack"],
    "metrics": ["success_content", "mse"],
    "over": {"mse": "successful"},
}


def make(**fields: Any) -> Any:
    return build_spec(find("figure", "table"), {**FIELDS, **fields})


@pytest.fixture
def material(scored: Scored, names: AxisLabels) -> FigureData:
    """CPL on photos recovers one of two images, on digits both; blind none."""
    cells = {
        ("photos", "cpl+restarts=0"): [4e-4, 0.5],
        ("digits", "cpl+restarts=0"): [1e-4, 3e-4],
        ("photos", "blind"): [0.1, 0.3],
    }
    tables = [
        scored(metric, values, dataset=dataset, attack=attack)
        for (dataset, attack), errors in cells.items()
        for metric, values in (
            ("mse", [[error] for error in errors]),
            ("success_content", [[float(error < 1e-3)] for error in errors]),
        )
    ]
    published = pd.DataFrame(
        {
            "figure": "table2",
            "dataset": ["cifar10", "cifar10"],
            "attack": "cpl",
            "metric": ["mse", "success_content"],
            "statistic": "mean",
            "value": [2.2e-4, 0.973],
            "note": "",
            "incomparable": "",
        }
    )
    return FigureData(pd.concat(tables), with_specs(published), names)


def test_numbers_equal_a_hand_computation(material: FigureData, tmp_path: Path):
    make().draw(material, tmp_path / "table2")
    table = (
        pd.read_csv(tmp_path / "table2.csv").set_index(["dataset", "attack", "metric"]).sort_index()
    )
    photos = table.loc[("photos", "cpl+restarts=0")]
    assert photos.loc["success_content", ["ours", "published", "count"]].tolist() == [0.5, 0.973, 2]
    assert photos.loc["mse", ["ours", "published", "count", "rows"]].tolist() == [
        4e-4,
        2.2e-4,
        1,
        2,
    ]
    assert photos.loc["mse", "stand_in"] == "photos for cifar10; cpl+restarts=0 for cpl"
    assert table.loc[("digits", "cpl+restarts=0", "mse"), "ours"] == pytest.approx(2e-4)
    assert table["published"].notna().sum() == 2


def test_text_forms_show_the_same_cells(material: FigureData, tmp_path: Path):
    make().draw(material, tmp_path / "table2")
    lines = (tmp_path / "table2.md").read_text(encoding="utf-8").splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[:6]]
    assert cells[0] == ["dataset", "metric", "CPL, ours", "CPL, paper", "blind"]
    assert cells[2] == ["photos (for CIFAR-10)", "success content", "0.5", "0.973", "0"]
    assert cells[3] == ["photos (for CIFAR-10)", "MSE*", "4.0e-4 (1)", "2.2e-4", "–"]
    assert cells[5] == ["digits", "MSE*", "2.0e-4 ± 1.4e-4", "–", "–"]
    latex = (tmp_path / "table2.tex").read_text(encoding="utf-8")
    assert r"MSE* & 4.0e-4 (1) & 2.2e-4 & –" in latex


def test_intervals_stand_in_place_of_deviations(material: FigureData, tmp_path: Path):
    again = material.scores.assign(victim=material.scores["victim"] + 2)
    twice = replace(material, scores=pd.concat([material.scores, again]))
    make(intervals=True).draw(twice, tmp_path / "table2")
    table = pd.read_csv(tmp_path / "table2.csv").set_index(["dataset", "attack", "metric"])
    rate = table.loc[("photos", "cpl+restarts=0", "success_content")]
    assert rate[["low", "high"]].tolist() == pytest.approx([0.0676, 0.9324], abs=1e-4)
    text = (tmp_path / "table2.md").read_text(encoding="utf-8")
    assert "0.5 [0.06759, 0.9324]" in text
    assert "[low, high] 95% confidence interval over victims" in text
    assert "±" not in text


def test_texts_are_escaped_for_latex(material: FigureData, names: AxisLabels, tmp_path: Path):
    odd = replace(names, labels={"mse": "MSE_% & more"})
    make().draw(FigureData(material.scores, material.published, odd), tmp_path / "t")
    assert r"MSE\_\% \& more" in (tmp_path / "t.tex").read_text(encoding="utf-8")


def test_the_picture_is_wide_enough_and_the_same_each_time(material: FigureData, tmp_path: Path):
    for name in ("first", "second"):
        make().draw(material, tmp_path / name)
    for suffix in (".svg", ".png"):
        first, second = (tmp_path / f"{name}{suffix}" for name in ("first", "second"))
        assert first.read_bytes() == second.read_bytes()
    with Image.open(tmp_path / "first.png") as picture:
        assert picture.width > picture.height > 200
        assert "Software" not in picture.info


def test_every_suffix_is_written(material: FigureData, tmp_path: Path):
    make().draw(material, tmp_path / "table2.of.paper")
    written = {path.name for path in tmp_path.iterdir()}
    assert written == {f"table2.of.paper{suffix}" for suffix in Table.suffixes}


def test_statistics_are_chosen_by_metric(material: FigureData, tmp_path: Path):
    make(over={}, statistics={"mse": "max"}).draw(material, tmp_path / "t")
    table = pd.read_csv(tmp_path / "t.csv").set_index(["dataset", "attack", "metric"]).sort_index()
    assert table.loc[("photos", "cpl+restarts=0", "mse"), "ours"] == 0.5
    assert "max MSE" in (tmp_path / "t.md").read_text(encoding="utf-8")


def test_a_metric_has_as_many_entries_as_statistics(material: FigureData, tmp_path: Path):
    fields = {"rows": ["dataset", "attack"], "columns": ["metric"], "over": {}, "metrics": ["mse"]}
    make(**fields, statistics={"mse": ["mean", "min", "max", "var"]}).draw(material, tmp_path / "t")
    lines = (tmp_path / "t.md").read_text(encoding="utf-8").splitlines()
    head, photos = ([cell.strip() for cell in lines[n].strip("|").split("|")] for n in (0, 2))
    assert head[2:] == [
        "MSE, ours",
        "MSE, paper",
        "min MSE",
        "max MSE",
        "var MSE",
    ]
    assert photos[2:] == ["0.2502 ± 0.35 ▾", "2.2e-4", "4.0e-4", "0.5", "0.1248"]


def test_values_of_the_failed_are_marked(material: FigureData, tmp_path: Path):
    make(over={"mse": "successful_else_all"}).draw(material, tmp_path / "t")
    text = (tmp_path / "t.md").read_text(encoding="utf-8")
    photos = next(line for line in text.splitlines() if "MSE*" in line)
    assert [cell.strip() for cell in photos.strip("|").split("|")][2:] == [
        "4.0e-4 (1)",
        "2.2e-4",
        "0.2 ± 0.14†",
    ]
    assert "* over successful reconstructions. † none succeeded" in text
    table = pd.read_csv(tmp_path / "t.csv").set_index(["dataset", "attack", "metric"]).sort_index()
    assert table.loc[("photos", "blind", "mse"), "failed"]
    assert table["failed"].sum() == 1


def test_signs_are_explained_where_they_stand(material: FigureData, tmp_path: Path):
    make(over={}).draw(material, tmp_path / "t")
    text = (tmp_path / "t.md").read_text(encoding="utf-8")
    assert "*" not in text and "†" not in text


def test_controls_without_any_value_have_no_line(material: FigureData, tmp_path: Path):
    fields = {"rows": ["attack"], "columns": ["dataset"], "metrics": ["mse"]}
    make(**fields).draw(material, tmp_path / "t")
    assert "blind" not in (tmp_path / "t.md").read_text(encoding="utf-8")
    assert "blind" in (tmp_path / "t.csv").read_text()


def test_a_control_stands_once_unless_the_crafting_is_told_apart(
    names: AxisLabels, cell: Callable[..., Cell]
):
    honest, fished = (
        [cell(crafting=crafting, attack=attack) for attack in ("cpl", "blind", "truth")]
        for crafting in ("honest", "fishing")
    )
    noisy = [cell(crafting="fishing", defense="gaussian", attack="blind")]
    rows = [*honest, *fished, *noisy]
    assert make().chosen(names, rows) == [*honest, fished[0], *noisy]
    assert make(rows=["crafting", "metric"]).chosen(names, rows) == rows


def test_two_values_of_one_label_are_refused(
    material: FigureData, names: AxisLabels, tmp_path: Path
):
    same = AxisLabels.read(names.values, {}, {"photos": "images", "digits": "images"})
    with pytest.raises(SpecError, match="labelled images"):
        make().draw(FigureData(material.scores, material.published, same), tmp_path / "t")


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"rows": ["dataset"]}, "put metric in rows or columns"),
        ({"columns": ["dataset"]}, "repeat an axis"),
        ({"columns": []}, "at least one axis"),
        ({"over": {"ssim": "all"}}, r"\['ssim'\], which are not in metrics"),
        ({"rwos": []}, "unknown field 'rwos'; did you mean 'rows'"),
        ({"statistics": {"mse": "mode"}}, "statistics"),
        ({"statistics": {"mse": []}}, "statistics"),
        ({"statistics": {"mse": ["min", "min"]}}, "given twice"),
        (
            {"rows": ["dataset"], "metrics": ["mse"], "statistics": {"mse": ["min", "max"]}},
            "2 numbers per cell",
        ),
    ],
)
def test_layouts_that_cannot_be_are_refused(fields: dict[str, Any], fault: str):
    with pytest.raises(SpecError, match=fault):
        make(**fields)


def test_a_metric_without_any_value_has_no_column_and_a_line_of_reason(
    material: FigureData, scored: Scored, tmp_path: Path
):
    nothing = scored("lpips", [[float("nan")], [float("nan")]], dataset="photos")
    nothing["attack"], nothing["status"] = "cpl+restarts=0", "unavailable"
    fields = {"rows": ["dataset", "attack"], "columns": ["metric"], "over": {}}
    table = pd.concat([material.scores, nothing])
    figure = make(**fields, metrics=["mse", "lpips"])
    figure.draw(replace(material, scores=table), tmp_path / "t")
    text = (tmp_path / "t.md").read_text(encoding="utf-8")
    assert "lpips" not in text.splitlines()[0]
    assert "lpips could not be computed: its weights are missing (make weights)." in text


def test_numbers_of_victims_and_what_is_worse_than_blind_are_explained(
    material: FigureData, tmp_path: Path
):
    make(over={}).draw(material, tmp_path / "t")
    text = (tmp_path / "t.md").read_text(encoding="utf-8")
    assert "0.2502 ± 0.35 ▾" in text
    assert "n = 2 victims. ± standard deviation over victims. ▾ worse than the blind" in text


def test_conditions_stand_below_the_table(material: FigureData, tmp_path: Path):
    make().draw(replace(material, conditions={"Data": "photos"}), tmp_path / "t")
    assert (tmp_path / "t.md").read_text(encoding="utf-8").endswith("\nData: photos\n")
    assert "% Data: photos\n" in (tmp_path / "t.tex").read_text(encoding="utf-8")


def test_published_values_of_other_metrics_are_marked_and_the_reason_is_below(
    material: FigureData, tmp_path: Path
) -> None:
    published = material.published.replace({"metric": {"success_content": OTHER_SUCCESS}})
    make().draw(replace(material, published=published), tmp_path / "table2")
    text = (tmp_path / "table2.md").read_text()
    assert "‡" in text
    reason = f"‡ not comparable: published is {OTHER_SUCCESS}, ours success_content."
    assert reason in text
    assert "0.973" not in text


OTHER_SUCCESS = "success_content+threshold=0.009"
