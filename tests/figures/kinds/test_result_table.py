from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from gleak.core.errors import SpecError
from gleak.studies.axis_labels import AxisLabels
from gleak.studies.figure_spec import FigureData
from tests.score_tables import DrawTwice, MakeCell, Scored, make_figure, published_values, read_page

FIELDS = {
    "grid": "attacks",
    "rows": ["dataset", "metric"],
    "columns": ["attack"],
    "metrics": ["success_content", "mse"],
    "over": {"mse": "successful"},
}


def make(**fields: Any) -> Any:
    return make_figure("table", **{**FIELDS, **fields})


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
    published = [
        {"dataset": "cifar10", "attack": "cpl", "metric": metric, "value": value}
        for metric, value in (("mse", 2.2e-4), ("success_content", 0.973))
    ]
    return FigureData(pd.concat(tables), published_values(*published), names)


def read_csv(path: Path) -> pd.DataFrame:
    return pd.read_csv(path).set_index(["dataset", "attack", "metric"]).sort_index()


def test_numbers_equal_a_hand_computation(material: FigureData, tmp_path: Path):
    make().draw(material, tmp_path / "table2")
    table = read_csv(tmp_path / "table2.csv")
    photos = table.loc[("photos", "cpl+restarts=0")]
    numbers = ["ours", "published", "count", "rows"]
    assert photos.loc["success_content", numbers].tolist() == [0.5, 0.973, 2, 2]
    assert photos.loc["mse", numbers].tolist() == [4e-4, 2.2e-4, 1, 2]
    assert photos.loc["mse", "stand_in"] == "photos for cifar10; cpl+restarts=0 for cpl"
    assert table.loc[("digits", "cpl+restarts=0", "mse"), "ours"] == pytest.approx(2e-4)
    assert table["published"].notna().sum() == 2


def test_page_and_latex_show_the_same_cells(material: FigureData, tmp_path: Path):
    odd = replace(material.names, labels={**material.names.labels, "mse": "MSE_% & <more>"})
    shown = replace(material, names=odd, conditions={"Data": "photos"})
    make(title="Success", reproduces="Table 2").draw(shown, tmp_path / "table2")
    rows, below = read_page(tmp_path / "table2.html")
    assert rows == [
        ["", "", "CPL", "blind"],
        ["dataset", "metric", "ours", "paper", ""],
        ["photos (for CIFAR-10)", "success content", "0.5", "0.973", "0"],
        ["MSE_% & <more>*", "4.0e-4 (1)", "2.2e-4", "–"],
        ["digits", "success content", "1", "–", "–"],
        ["MSE_% & <more>*", "2.0e-4 ± 1.4e-4", "–", "–"],
    ]
    assert below.endswith("– no value.\n\n\nDataphotos")
    page = (tmp_path / "table2.html").read_text(encoding="utf-8")
    assert '<h1>Success</h1>\n<p class="source">Table 2</p>' in page
    latex = (tmp_path / "table2.tex").read_text(encoding="utf-8")
    assert r"MSE\_\% \& <more>* & 4.0e-4 (1) & 2.2e-4 & --" in latex
    assert "% Data: photos\n" in latex


def test_files_are_the_same_each_time(material: FigureData, draw_twice: DrawTwice):
    draw_twice(make(), material)


def test_the_best_of_several_attacks_is_bold(material: FigureData, scored: Scored, tmp_path: Path):
    others = [
        scored("mse", [[0.2], [0.2]], dataset="photos", attack="dlg"),
        scored("mse", [[1e-4], [3e-4]], dataset="digits", attack="dlg"),
    ]
    several = replace(material, scores=pd.concat([material.scores, *others]))
    make(over={}, metrics=["mse"]).draw(several, tmp_path / "t")
    bold = re.findall("<b>(.*?)</b>", (tmp_path / "t.html").read_text(encoding="utf-8"))
    assert bold == ["0.2"], "not CPL, which is worse than blind; on digits all are equal"
    assert r"\bfseries 0.2" in (tmp_path / "t.tex").read_text(encoding="utf-8")
    assert "bold: the best attack on a setting." in read_page(tmp_path / "t.html")[1]


def test_intervals_stand_in_place_of_deviations(material: FigureData, tmp_path: Path):
    again = material.scores.assign(victim=material.scores["victim"] + 2)
    twice = replace(material, scores=pd.concat([material.scores, again]))
    make(intervals=True).draw(twice, tmp_path / "table2")
    rate = read_csv(tmp_path / "table2.csv").loc[("photos", "cpl+restarts=0", "success_content")]
    assert rate[["low", "high"]].tolist() == pytest.approx([0.0676, 0.9324], abs=1e-4)
    text = (tmp_path / "table2.html").read_text(encoding="utf-8")
    assert "0.5 [0.06759, 0.9324]" in text
    assert "[low, high] 95% confidence interval over victims" in text
    assert "±" not in text


def test_a_metric_has_as_many_entries_as_statistics(material: FigureData, tmp_path: Path):
    fields = {"rows": ["dataset", "attack"], "columns": ["metric"], "over": {}, "metrics": ["mse"]}
    make(**fields, statistics={"mse": ["mean", "min", "max", "var"]}).draw(material, tmp_path / "t")
    head, _, photos, *_ = read_page(tmp_path / "t.html")[0]
    assert head[2:] == ["MSE", "min MSE", "max MSE", "var MSE"]
    assert photos[2:] == ["0.2502 ± 0.35 ▾", "2.2e-4", "4.0e-4", "0.5", "0.1248"]


def test_values_of_the_failed_are_marked(material: FigureData, tmp_path: Path):
    make(over={"mse": "successful_else_all"}).draw(material, tmp_path / "t")
    rows, below = read_page(tmp_path / "t.html")
    assert next(row for row in rows if row[0] == "MSE*")[1:] == [
        "4.0e-4 (1)",
        "2.2e-4",
        "0.2 ± 0.14†",
    ]
    assert "* over successful reconstructions.\n† no successes; mean over failures" in below
    table = read_csv(tmp_path / "t.csv")
    assert table.loc[("photos", "blind", "mse"), "failed"]
    assert table["failed"].sum() == 1


def test_controls_without_any_value_have_no_line(material: FigureData, tmp_path: Path):
    fields = {"rows": ["attack"], "columns": ["dataset"], "metrics": ["mse"]}
    make(**fields).draw(material, tmp_path / "t")
    assert "blind" not in (tmp_path / "t.html").read_text(encoding="utf-8")
    assert "blind" in (tmp_path / "t.csv").read_text()


def test_a_control_stands_once_unless_the_crafting_is_told_apart(names: AxisLabels, cell: MakeCell):
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
    rows, below = read_page(tmp_path / "t.html")
    assert not any("lpips" in text for row in rows for text in row)
    assert "lpips could not be computed: its weights are missing (make weights)." in below


def test_numbers_of_victims_and_what_is_worse_than_blind_are_explained(
    material: FigureData, tmp_path: Path
):
    make(over={}).draw(material, tmp_path / "t")
    rows, below = read_page(tmp_path / "t.html")
    assert any("0.2502 ± 0.35 ▾" in row for row in rows)
    assert "n = 2 victims.\n± standard deviation over victims.\n▾ worse than the blind" in below
    assert "*" not in below and "†" not in below


def test_published_values_of_other_metrics_are_marked_and_the_reason_is_below(
    material: FigureData, tmp_path: Path
) -> None:
    published = material.published.replace({"metric": {"success_content": OTHER_SUCCESS}})
    make().draw(replace(material, published=published), tmp_path / "table2")
    text = (tmp_path / "table2.html").read_text(encoding="utf-8")
    assert f"‡ not comparable: published is {OTHER_SUCCESS}, ours success_content." in text
    assert "0.973" not in text


OTHER_SUCCESS = "success_content+threshold=0.009"
