from __future__ import annotations

import subprocess
import sys
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from gleak.core.errors import GleakError, IncompatibleError, SpecError
from gleak.core.registry import parse
from gleak.core.settings import SCALES
from gleak.figures.published import read_published
from gleak.studies.cell import LEVELS
from gleak.studies.study import Study, load_study

STUDIES = Path(__file__).parents[2] / "studies"
HEAVY = ("torch._C", "pandas", "matplotlib", "seaborn", "scipy", "sklearn", "skimage")
CONTENT: dict[str, Any] = {
    "title": "Attacks",
    "paper": "Somebody 2020",
    "grids": {
        "attacks": {
            **dict(zip(LEVELS, ["?", "lenet", "untrained", "honest", "fedsgd"], strict=False)),
            "dataset": ["mnist", "cifar10"],
            "defense": ["none", "gaussian"],
            "attack": ["cpl", "dlg"],
            "labels": {"mnist": "MNIST", "defense.std": "noise", "mse": "MSE", "cpl": "CPL"},
            "quick": {"dataset": "digits", "proxy_for": {"digits": "mnist"}},
        },
        "models": {
            "dataset": "digits",
            "model": "lenet",
            "training": ["federated", "federated+defense=gaussian"],
        },
    },
    "figures": {
        "table": {
            "kind": "table",
            "grid": "attacks",
            "rows": ["dataset", "defense"],
            "columns": ["attack", "metric"],
            "metrics": ["mse", "ssim"],
        },
        "line": {
            "kind": "line",
            "grid": "attacks",
            "x": "defense.std",
            "y": "mse",
            "where": {"dataset": "mnist", "attack": "cpl"},
        },
        "pictures": {"kind": "images", "grid": "attacks", "where": {"dataset": "mnist"}},
        "accuracy": {
            "kind": "table",
            "grid": "models",
            "rows": ["metric"],
            "columns": ["training.defense"],
            "metrics": ["test_accuracy"],
        },
        "compared": {"kind": "attacks", "attacks": ["dlg", "cpl"]},
    },
    "expect": [
        {
            "id": "faster",
            "grid": "attacks",
            "metric": "iterations",
            "along": "attack",
            "order": ["cpl", "dlg"],
            "claim": "CPL is faster",
            "source": "Table 2",
        },
        {
            "id": "noise_costs",
            "grid": "models",
            "metric": "test_accuracy",
            "along": "training",
            "order": ["federated+defense=gaussian", "federated"],
            "claim": "Noise costs accuracy",
            "source": "Table 8",
        },
    ],
}


def write(folder: Path, content: Any) -> Path:
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path


def changed(place: str, value: Any) -> dict[str, Any]:
    """The content with one place, keys that a space separates, set to something else."""
    content = deepcopy(CONTENT)
    *keys, last = place.split()
    inner: Any = content
    for key in keys:
        inner = inner[int(key) if key.isdigit() else key]
    inner[last] = value
    return content


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return load_study(write(tmp_path, CONTENT))


def test_a_study_is_read(study: Study):
    assert (study.name, study.title, study.paper) == ("mine", "Attacks", "Somebody 2020")
    assert list(study.figures) == ["table", "line", "pictures", "accuracy", "compared"]
    assert len(study.grid("attacks", "quick").cells) == 6
    assert len(study.grid("attacks", "paper").cells) == 12
    names = study.grid("attacks", "quick").names
    assert names.label("dataset", parse("dataset", "digits")) == "digits"
    assert study.expectations[0].compared == ("attack", ["cpl", "dlg"])


def test_the_scale_headline_has_the_grids_that_declare_it(tmp_path: Path):
    """With their figures and claims; a grid does not inherit it from its base."""
    content = deepcopy(CONTENT)
    content["grids"]["attacks"]["headline"] = {"networks": 3, "client": {"victims": 2}}
    content["grids"]["again"] = {"base": "attacks", "client": "fedsgd+batch_size=2"}
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(content))
    study = load_study(path)
    there = study.at("headline")
    assert [*there.grids] == ["attacks"]
    assert {grid for figure in there.figures.values() for grid in figure.grids} == {"attacks"}
    assert {claim.grid for claim in there.expectations} <= {"attacks"}
    (client,) = there.grid("attacks", "headline").names.axis("client")
    assert (str(client), there.grid("attacks", "headline").networks) == ("fedsgd+victims=2", 3)
    for scale in ("quick", "small", "paper"):
        assert {*study.at(scale).grids} == {"attacks", "models", "again"}
    assert study.scales == [*SCALES]
    content["grids"]["attacks"].pop("headline")
    path.write_text(yaml.safe_dump(content))
    assert load_study(path).scales == ["quick", "small", "paper"]


def test_images_name_the_cells_they_show(study: Study):
    shown = study.shown("pictures", "quick")
    assert [str(cell) for cell in shown] == [
        f"digits/lenet/untrained/honest/fedsgd/{defense}/{attack}"
        for defense in ("none", "gaussian")
        for attack in ("cpl", "dlg")
    ]
    assert study.shown("table", "quick") == []


@pytest.mark.parametrize(
    ("method", "names", "fault"),
    [
        ("grid", ("atacks", "quick"), "unknown grid 'atacks'; did you mean 'attacks'"),
        ("grid", ("attacks", "quik"), "unknown scale 'quik'; did you mean 'quick'"),
        ("figure", ("tabel",), "unknown figure 'tabel'; did you mean 'table'"),
    ],
)
def test_asking_for_what_is_not_there(study: Study, method: str, names: Any, fault: str):
    with pytest.raises(SpecError, match=f"study 'mine': {fault}"):
        getattr(study, method)(*names)


@pytest.mark.parametrize(
    ("place", "value", "fault"),
    [
        ("figurs", {}, "unknown key 'figurs'; did you mean 'figures'"),
        ("grids attacks datset", "mnist", "'attacks': unknown key 'datset'; did you mean"),
        ("grids attacks quick datset", "mnist", "'attacks': unknown key 'quick.datset'; did you"),
        ("grids attacks dataset", "mnits", "scale .*, axis 'dataset': unknown .* 'mnits'"),
        ("grids attacks quick dataset", "digit", "'quick', axis 'dataset': unknown dataset"),
        ("grids attacks controls", ["blnd"], "grid 'attacks': controls.0"),
        ("grids attacks labels", {"mnits": "M"}, "labels: 'mnits' is no spec, value, metric or"),
        ("figures table kind", "tabel", "'table': unknown figure 'tabel'; did you mean 'table'"),
        ("figures table", {"grid": "attacks"}, "key 'kind' is missing; valid: attacks, bar"),
        ("figures compared grid", "attacks", "unknown field 'grid'; valid: attacks, caption"),
        ("figures compared attacks", ["dgl"], "unknown attack 'dgl'; did you mean 'dlg'"),
        ("figures table rwos", [], "'table': .*unknown field 'rwos'; did you mean 'rows'"),
        ("figures table grid", "atacks", "unknown grid 'atacks'; did you mean 'attacks'"),
        ("figures table metrics", ["msee"], "'table', scale 'quick': unknown metric 'msee'; did"),
        ("figures table rows", ["dataset", "defence"], "unknown axis 'defence'; did .*'defense'"),
        ("figures line x", "defense.sdt", "'sdt'; did you mean 'std'"),
        ("figures line where", {"attack": "cpl"}, "'small': several cells share a place: dataset"),
        ("figures line where", {"dataset": "cifar10"}, "'quick': the grid has no dataset"),
        ("expect 0 grid", "atacks", "expect 'faster': unknown grid 'atacks'"),
        ("expect 0 oder", [], "'faster': .*unknown key 'oder'; did you mean 'order'"),
        ("figures accuracy metrics", ["ssim"], "'ssim' is of .*attack, .*end with training"),
        ("figures table metrics", ["test_accuracy"], "'test_accuracy' is of .*training, .*attack"),
        ("figures pictures grid", "models", "'pictures', scale 'quick': metric 'mse' is of"),
        ("figures accuracy columns", ["attack"], "unknown axis 'attack'; .*valid: dataset"),
        ("expect 0 metric", "test_accuracy", "expect 'faster': metric 'test_a"),
        ("expect 1 metric", "mse", "expect 'noise_costs': metric 'mse' is of"),
        ("expect 1 where", {"attack": "cpl"}, "unknown level 'attack'"),
        ("grids models client", "fedsgd", "'models': axis 'crafting' is left out before 'client'"),
        ("expect 0 order", ["cpl", "idlg"], "no attack 'idlg' at any scale"),
        ("expect", CONTENT["expect"][:1] * 2, "expect: id faster is given twice"),
    ],
)
def test_faults_name_file_study_and_place(tmp_path: Path, place: str, value: Any, fault: str):
    path = write(tmp_path, changed(place, value))
    with pytest.raises(SpecError, match=fault) as raised:
        load_study(path)
    assert str(raised.value).startswith(f"{path}: study 'mine'")


@pytest.mark.parametrize(
    ("level", "spec", "error", "fault"),
    [
        ("defense", "topk+keep=1.5", SpecError, "axis 'defense': .*'keep' = '1.5': .*less than"),
        ("client", "fedavg+mini_batch=3", SpecError, "axis .client.: .*mini_batch=3 is more than"),
        ("attack", "cpl+start=red", IncompatibleError, "start red needs images of 3 channels"),
        ("attack", "aono", IncompatibleError, "aono .* dense, but model lenet begins with a conv"),
    ],
)
def test_specs_that_do_not_fit_name_their_place(
    tmp_path: Path, level: str, spec: str, error: type[Exception], fault: str
):
    path = write(tmp_path, changed(f"grids attacks {level}", spec))
    place = "mine.yaml: study 'mine', grid 'attacks', scale 'quick'"
    with pytest.raises(error, match=f"{place}.*{fault}"):
        load_study(path)


def test_tables_are_refused_where_images_are_wanted(tmp_path: Path):
    path = write(tmp_path, changed("grids attacks quick", {"dataset": "adult"}))
    fault = "scale 'quick': dataset adult: model lenet takes image data, not tabular data; choose"
    with pytest.raises(IncompatibleError, match=f"study 'mine', grid 'attacks', {fault}"):
        load_study(path)
    table = {**CONTENT["grids"]["attacks"], "dataset": "adult", "model": "mlp"}
    del table["quick"], table["labels"]
    content = {**CONTENT, "grids": {"attacks": table}, "expect": []}
    content["figures"] = {"pictures": {"kind": "images", "grid": "attacks"}}
    fault = "scale 'quick': dataset 'adult' has tabular data, which have no images"
    with pytest.raises(SpecError, match=f"study 'mine', figure 'pictures', {fault}"):
        load_study(write(tmp_path, content))


@pytest.mark.parametrize(
    ("text", "fault"), [("a: [", "not YAML"), ("- a", "must be a mapping"), (None, "no study file")]
)
def test_files_that_are_no_studies(tmp_path: Path, text: str | None, fault: str):
    path = tmp_path / "mine.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(GleakError, match=fault) as raised:
        load_study(path)
    assert str(path) in str(raised.value)


shipped = cache(load_study)
"""Read a study of the repository once for all tests."""


@pytest.mark.parametrize(
    "file", sorted(STUDIES.glob("published/*.csv")), ids=lambda file: file.stem
)
def test_published_values_are_each_compared_with_a_cell(file: Path):
    """At the scale of the paper no value is lost to a name that nothing has."""
    study, table = shipped(STUDIES / f"{file.stem}.yaml"), read_published(file)
    grids = {name: study.drawn(name, SCALES[-1])[0] for name in {*table["figure"]}}
    chosen = {
        name: list(study.figures[name].chosen(grid.names, grid.names.cells(grid.scored)))
        for name, grid in grids.items()
    }
    for row in table.to_dict("records"):
        figure, names = study.figure(row["figure"]), grids[row["figure"]].names
        cells = [
            scored
            for scored in chosen[row["figure"]]
            if all(
                names.published(level, spec, [row[level]]) == row[level]
                for level, spec in scored.specs.items()
                if row.get(level)
            )
        ]
        assert len(cells) == 1, row
        assert row["metric"] in figure.used_metrics


@pytest.mark.parametrize("path", sorted(STUDIES.glob("*.yaml")), ids=lambda path: path.stem)
def test_shipped_studies_have_no_refused_cells(path: Path):
    study = shipped(path)
    for scale in SCALES:
        assert set(study.refused(scale).values()) <= {()}
        assert study.examined(scale, path.parent / "nowhere") == study


def test_reading_a_study_imports_nothing_heavy():
    """The workflow's graph is built from studies, on every start."""
    code = (
        "import sys; from gleak.studies.study import load_study; load_study(sys.argv[1]); "
        f"print(*sorted(set({HEAVY}) & set(sys.modules)))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code, str(STUDIES / "cpl.yaml")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.split() == []
