from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from gleak.core.errors import SpecError
from gleak.core.registry import parse
from gleak.studies.study import Study, load_study
from tests.score_tables import LEVELS

ALEX = "lpips+net=alex"
LOOSE = "success_content+threshold=0.009"
CONTENT: dict[str, Any] = {
    "title": "Attacks",
    "paper": "Somebody 2020",
    "grids": {
        "attacks": {**LEVELS, "attack": ["cpl", "dlg"]},
        "others": {**LEVELS, "dataset": "photos"},
    },
    "figures": {
        "table": {
            "kind": "table",
            "grid": "attacks",
            "rows": ["attack"],
            "columns": ["metric"],
            "metrics": ["mse", ALEX, "success_content", LOOSE],
            "statistics": {ALEX: ["mean", "best"]},
        },
        "bars": {"kind": "bar", "grid": "others", "x": "attack", "y": ["mse"]},
        "images": {"kind": "images", "grid": "others", "layout": "results"},
    },
    "expect": [
        {
            "id": "nearer",
            "grid": "attacks",
            "metric": ALEX,
            "along": "attack",
            "order": ["cpl", "dlg"],
            "claim": "CPL is nearer",
            "source": "Table 2",
        }
    ],
    "scales": {"quick": {"metrics": {ALEX: "lpips"}}},
}


def load(folder: Path, content: dict[str, Any] = CONTENT) -> Study:
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return load_study(path)


def test_figures_and_claims_show_what_is_measured_at_the_scale(tmp_path: Path) -> None:
    study = load(tmp_path)
    for scale, metric in {"paper": ALEX, "small": ALEX, "quick": "lpips"}.items():
        figure: Any = study.figure("table", scale)
        assert figure.metrics == ["mse", metric, "success_content", LOOSE]
        assert figure.statistics == {metric: ["mean", "best"]}
        assert [claim.metric for claim in study.claims(scale)] == [metric]
    assert study.figure("bars", "quick") == study.figures["bars"]


def test_a_study_says_how_its_paper_measures(tmp_path: Path) -> None:
    content = {**CONTENT, "metrics": {"mse": "psnr", LOOSE: "ssim"}}
    study = load(tmp_path, {**content, "scales": {"quick": {"metrics": {"mse": "mse"}}}})
    for scale, metric in {"paper": "psnr", "quick": "mse"}.items():
        figure: Any = study.figure("table", scale)
        assert figure.metrics == [metric, ALEX, "success_content", "ssim"]
        bars: Any = study.figure("bars", scale)
        assert bars.y == [metric]


def test_defaults_are_replaced_and_others_stay_unwritten(tmp_path: Path) -> None:
    content = {**CONTENT, "metrics": {"mse": "ssim"}, "scales": {}}
    figure: Any = load(tmp_path, content).figure("images")
    assert figure.metric == "ssim"
    assert figure.model_fields_set == {"grid", "layout", "metric"}


def test_cells_have_the_metrics_that_their_figures_show(tmp_path: Path) -> None:
    study = load(tmp_path)
    for scale, metric in {"paper": ALEX, "quick": "lpips"}.items():
        asked = study.asked_metrics(scale)
        for name, metrics in {
            "attacks": ["mse", metric, "success_content", LOOSE],
            "others": ["mse"],
        }.items():
            grid = study.grids[name][scale]
            wanted = {parse("metric", text) for text in metrics}
            assert {frozenset(asked[c]) for c in [*grid.cells, *grid.truths]} == {frozenset(wanted)}


@pytest.mark.parametrize(
    ("instead", "fault"),
    [
        ({"lpips+net=alx": "lpips"}, "no figure or claim shows 'lpips"),
        ({"ssim": "mse"}, "no figure or claim shows 'ssim'"),
        ({ALEX: "lpips+net=big"}, "metric 'lpips': field 'net' = 'big'"),
        ({ALEX: "test_accuracy"}, "end with attack, 'test_accuracy' of .* end with training"),
    ],
)
def test_a_wrong_substitute_is_refused_with_its_place(
    tmp_path: Path, instead: dict[str, str], fault: str
) -> None:
    content = deepcopy(CONTENT)
    content["scales"]["quick"]["metrics"] = instead
    with pytest.raises(SpecError, match=rf"mine\.yaml.*scale .quick.*{fault}"):
        load(tmp_path, content)


def test_a_grid_names_the_metrics_of_its_cells(tmp_path: Path) -> None:
    content = deepcopy(CONTENT)
    content["grids"]["others"]["metrics"] = ["psnr", "chosen"]
    named = dict(load(tmp_path, content).named_metrics("quick"))
    grids = load(tmp_path, content).grids
    wanted = frozenset(parse("metric", name) for name in ("psnr", "chosen"))
    others = grids["others"]["quick"]
    assert {named[cell] for cell in (*others.cells, *others.truths)} == {wanted}
    assert {named[cell] for cell in grids["attacks"]["quick"].cells} == {None}


@pytest.mark.parametrize("metric", ["psnrr", "test_accuracy"])
def test_a_metric_that_cells_do_not_have_is_refused(tmp_path: Path, metric: str) -> None:
    content = deepcopy(CONTENT)
    content["grids"]["others"]["metrics"] = [metric]
    with pytest.raises(SpecError, match=rf"grid .others.*metrics.*{metric}"):
        load(tmp_path, content)
