from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gleak.artifacts.model import Knowledge
from gleak.artifacts.private import Private
from gleak.artifacts.reconstruction import Reconstruction
from gleak.core.errors import ArtifactError
from gleak.core.registry import load
from gleak.figures.draw import draw
from gleak.figures.judge import judge_study
from gleak.figures.tabulate import tabulate
from gleak.metrics.score_table import save_refusal
from gleak.studies.cell import Paths
from gleak.studies.study import Study, load_study
from tests.score_tables import STUDY, Scored, WriteScores, read_page

FIGURES = load_study(STUDY).figures
OF_TWO = [name for name, figure in FIGURES.items() if len(figure.grids) == 2]
OF_ATTACKS = [name for name, figure in FIGURES.items() if [*figure.grids] == ["attacks"]]
OF_MODELS = [name for name, figure in FIGURES.items() if [*figure.grids] == ["models"]]
PUBLISHED = """figure,dataset,training,attack,metric,statistic,value,note
speed,mnist,,cpl,mse,mean,0.125,
errors,mnist,,cpl,mse,mean,0.875,
accuracy,mnist,federated+defense=gaussian,,test_accuracy,mean,0.875,
"""


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(tmp_path / "results")


@pytest.fixture
def table_of(
    study: Study, tmp_path: Path, scored: Scored, write: WriteScores
) -> Callable[..., Path]:
    """The table of a grid, from its metric and the values of each spec of the last level."""

    def make(grid: str, metric: str, values: Callable[[str], list[Any]]) -> Path:
        declared = study.grid(grid, "quick")
        last = [*declared.names.values][-1]
        tables = (scored(metric, values(row[last]), **row) for row in declared.scored)
        files = [write(f"{number}.csv", table) for number, table in enumerate(tables)]
        tabulate(files, tmp_path / f"{grid}.csv")
        return tmp_path / f"{grid}.csv"

    return make


@pytest.fixture
def scores(table_of: Callable[..., Path]) -> Path:
    """A table of the whole grid: an error of 0.25 each."""
    return table_of("attacks", "mse", lambda _: [[0.25], [0.25]])


@pytest.fixture
def accuracies(table_of: Callable[..., Path]) -> Path:
    """The table of the grid of models: 0.75 with noise, 0.5 without."""
    return table_of("models", "test_accuracy", lambda spec: [0.75 if "+" in spec else 0.5])


@pytest.fixture
def published(tmp_path: Path) -> Path:
    path = tmp_path / "published.csv"
    path.write_text(PUBLISHED)
    return path


def put_images(study: Study, paths: Paths) -> None:
    (cell,) = study.shown("pictures", "quick")
    images = np.full((2, 1, *cell.dataset.shape), 0.5, dtype=np.float32)
    labels = np.zeros((2, 1), dtype=int)
    private = Private(inputs=images, labels=labels, indices=labels)
    private.write(paths.folder(cell.upto("defense")) / "private.h5")
    found = Reconstruction(
        inputs=images,
        labels=labels,
        converged=np.ones(2, dtype=bool),
        trace_iteration=np.array([0, 1]),
        trace_objective=np.array([[1.0, 0.5], [1.0, 0.25]]),
    )
    found.write(paths.folder(cell) / "reconstruction.h5")
    put_tagger(study, paths)


def put_tagger(study: Study, paths: Paths) -> None:
    (trained,) = study.figure("words").trainings("quick")
    names = np.array([str(number) for number in range(trained.dataset.classes)])
    state = trained.knowledge.build(trained.dataset.shape, len(names)).state_dict()
    parameters = {name: value.numpy() for name, value in state.items()}
    put_knowledge(paths, trained, {}, class_names=names, parameters=parameters)


def put_knowledge(paths: Paths, trained: Any, losses: dict[str, Any], **fields: Any) -> None:
    """What a training of two steps left, its losses noted at each."""
    names = fields.setdefault("class_names", np.array([], object))
    Knowledge(
        knowledge=str(trained.knowledge),
        dataset=str(trained.dataset),
        classes=len(names),
        input_shape=np.array(trained.dataset.shape),
        **{"parameters": {}, **fields},
        buffers={},
        loss_step=np.array([1, 2] if losses else [], dtype=int),
        losses=losses,
        fingerprints=np.zeros(2, np.uint64),
    ).write(paths.knowledge(trained))


@pytest.mark.parametrize("figure", OF_ATTACKS)
def test_a_figure_is_written_with_its_numbers(
    study: Study, paths: Paths, scores: Path, published: Path, tmp_path: Path, figure: str
):
    put_images(study, paths)
    folder = tmp_path / "figures"
    draw(study, figure, "quick", [scores], published, paths, folder)
    wanted = {f"{figure}{suffix}" for suffix in study.figure(figure).suffixes}
    assert {path.name for path in folder.iterdir()} == wanted


def test_a_figure_without_a_grid_needs_no_scores(study: Study, paths: Paths, tmp_path: Path):
    draw(study, "compared", "quick", [], None, paths, tmp_path)
    assert {path.suffix for path in tmp_path.iterdir()} == {".html", ".csv", ".tex"}
    assert study.drawn("compared", "quick") == study.shown("compared", "quick") == []
    assert study.caption("compared", "quick") == "What they use.\n\nReproduces Table 7."


def test_a_figure_of_losses_is_drawn_from_the_knowledge_of_its_scale(
    study: Study, paths: Paths, tmp_path: Path
):
    (trained,) = study.figure("learning").trainings("quick")
    put_knowledge(paths, trained, {"mse": np.array([0.5, 0.25])})
    draw(study, "learning", "quick", [], None, paths, tmp_path / "figures")
    table = pd.read_csv(tmp_path / "figures" / "learning.csv")
    assert table["value"].tolist() == [0.5, 0.25]
    assert set(table["dataset"]) == {"digits"}
    assert (
        study.caption("learning", "quick")
        == f"How they learn.\n\n**Networks:** {trained.knowledge} on digits."
    )


def test_every_kind_of_figure_is_drawn_here():
    """But those whose scores are not of attacks, which have tests of their own."""
    of_others = {"roc", "diagonal", "power_law", "trade_off_function"}
    assert {figure.name for figure in FIGURES.values()} == set(load("figure")) - of_others


def test_each_figure_has_its_own_published_values(
    study: Study, paths: Paths, scores: Path, published: Path, tmp_path: Path
):
    for figure, value in (("speed", 0.125), ("errors", 0.875)):
        draw(study, figure, "quick", [scores], published, paths, tmp_path / "figures")
        table = pd.read_csv(tmp_path / "figures" / f"{figure}.csv")
        assert table["published"].dropna().tolist() == [value]
    draw(study, "speed", "quick", [scores], None, paths, tmp_path / "figures")
    assert pd.read_csv(tmp_path / "figures" / "speed.csv")["published"].isna().all()


@pytest.mark.parametrize("figure", OF_MODELS)
def test_a_figure_of_models_needs_no_attack(
    study: Study, paths: Paths, accuracies: Path, published: Path, tmp_path: Path, figure: str
):
    folder = tmp_path / "figures"
    draw(study, figure, "quick", [accuracies], published, paths, folder)
    wanted = {f"{figure}{suffix}" for suffix in study.figure(figure).suffixes}
    assert {path.name for path in folder.iterdir()} == wanted
    numbers = "mean" if study.figure(figure).name == "distribution" else "ours"
    assert pd.read_csv(folder / f"{figure}.csv")[numbers].tolist() == [0.5, 0.75]


@pytest.mark.parametrize("figure", OF_TWO)
def test_a_figure_of_two_grids_joins_them(
    study: Study, paths: Paths, scores: Path, accuracies: Path, tmp_path: Path, figure: str
):
    draw(study, figure, "quick", [scores, accuracies], None, paths, tmp_path)
    table = pd.read_csv(tmp_path / f"{figure}.csv")
    assert table[["attack", "privacy", "utility"]].to_numpy().tolist() == [
        ["cpl", 0.25, 0.5],
        ["dlg", 0.25, 0.5],
    ]
    attacked, models = study.caption(figure, "quick").split("\n\n")[-2:]
    assert "| **Victims:** 2.\n" in attacked
    assert models.startswith("| **Data:** digits (for mnist), 16 × 16 grey pixels.\n")
    for text in (attacked, models):
        assert "| **Scale:** quick, 2 cells." in text


def test_a_table_of_models_has_the_papers_values(
    study: Study, paths: Paths, accuracies: Path, published: Path, tmp_path: Path
):
    draw(study, "accuracy", "quick", [accuracies], published, paths, tmp_path)
    rows, _ = read_page(tmp_path / "accuracy.html")
    assert rows == [
        ["", "", "digits (for mnist)"],
        ["metric", "noise", "ours", "paper"],
        ["accuracy", "none", "0.5", "–"],
        ["gaussian", "0.75", "0.875"],
    ]


def test_attacks_stand_on_an_axis_while_the_crafting_differs(
    study: Study, paths: Paths, table_of: Callable[..., Path], tmp_path: Path
):
    values = {"dlg": 0.5, "invertgrad": 0.25, "fishing": 0.125, "blind": 0.75, "truth": 0.0}
    scores = table_of("servers", "mse", lambda spec: [[values[spec]]] * 2)
    for figure in ("against", "beside"):
        draw(study, figure, "quick", [scores], None, paths, tmp_path)
        table = pd.read_csv(tmp_path / f"{figure}.csv")
        assert dict(zip(table["attack"], table["ours"], strict=True)) == values
    assert read_page(tmp_path / "against.html")[0][0] == ["metric", *values]


def test_figures_of_broadcast_parameters_need_no_attack(
    study: Study, paths: Paths, table_of: Callable[..., Path], tmp_path: Path
):
    scores = table_of(
        "broadcasts", "audit_zeros", lambda spec: [{"honest": 0.25, "fishing": 4.0}[spec]]
    )
    for figure in ("audits", "alarms"):
        draw(study, figure, "quick", [scores], None, paths, tmp_path)
        table = pd.read_csv(tmp_path / f"{figure}.csv", keep_default_na=False)
        assert table["ours"].tolist() == [0.25, 4.0]
        assert set(table["client"]) == {""}
    assert "| **Crafting:** honest, fishing." in study.caption("audits", "quick")


def test_a_claim_about_two_models_is_on_one_training_each(
    study: Study, accuracies: Path, tmp_path: Path
):
    table = judge_study(study, "quick", {"models": accuracies}, tmp_path)
    assert table[["ours", "n", "verdict", "needed"]].to_numpy().tolist() == [
        ["-0.25", 1, "cannot tell", "at least 6"]
    ]


def test_the_table_of_another_scale_is_refused(
    study: Study, paths: Paths, scores: Path, tmp_path: Path
):
    with pytest.raises(ArtifactError, match="not the table of grid 'attacks' at scale 'paper'"):
        draw(study, "speed", "paper", [scores], None, paths, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("figure", "reach"),
    [("errors", "before the run"), *((figure, "in the run") for figure in [*OF_ATTACKS, *OF_TWO])],
)
def test_a_refused_cell_stands_in_every_figure(
    study: Study,
    paths: Paths,
    accuracies: Path,
    scored: Scored,
    write: WriteScores,
    tmp_path: Path,
    figure: str,
    reach: str,
):
    (*others,) = (row for row in study.grid("attacks", "quick").scored if row["attack"] != "cpl")
    (cell,) = study.shown("pictures", "quick")
    refused = {**cell.strings(), "reason": "it does not fit"}
    files = [
        write(f"{row['attack']}.csv", scored("mse", [[0.25], [0.25]], **row)) for row in others
    ]
    if reach == "in the run":
        save_refusal(refused, refused["reason"], tmp_path / "cpl.csv")
        tabulate([*files, tmp_path / "cpl.csv"], tmp_path / "scores.csv")
    else:
        tabulate(files, tmp_path / "scores.csv", [refused])
    put_tagger(study, paths)
    folder, tables = tmp_path / "figures", [tmp_path / "scores.csv", accuracies]
    draw(study, figure, "quick", tables[: len(study.drawn(figure, "quick"))], None, paths, folder)
    numbers = pd.read_csv(folder / f"{figure}.csv", keep_default_na=False)
    reasons = dict(zip(numbers["attack"], numbers["reason"], strict=True))
    assert reasons.pop("cpl") == "it does not fit"
    assert set(reasons.values()) <= {""}
    page = folder / f"{figure}.html"
    assert not page.exists() or "n/a it does not fit." in page.read_text(encoding="utf-8")
