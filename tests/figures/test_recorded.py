from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from gleak.core.errors import ArtifactError, SpecError
from gleak.figures.record_files import CONDITIONS, Conditions, read_conditions
from gleak.figures.recorded import (
    Record,
    finished_grids,
    record_grid,
    record_picture,
    records_of,
    write_results,
)
from gleak.figures.tabulate import tabulate
from gleak.metrics.score_table import read_scores, save_scores
from gleak.studies.cell import Paths
from gleak.studies.claims import Bound
from gleak.studies.study import Study
from tests.score_tables import Scored

Run = Callable[..., Path]
FACTS = {
    "time": "2026-01-02T03:04:05+00:00",
    "commit": "0123abc",
    "gleak": "1.0",
    "torch": "2.0",
    "device": "cpu",
    "threads": 1,
    "cpu_seconds": 1800.0,
    "host": "a-machine",
}


@pytest.fixture
def run(tmp_path: Path, study: Study, scored: Scored) -> Run:
    """A run that has finished one grid; the facts of its last cell may differ."""

    def make(grid: str = "attacks", **facts: object) -> Path:
        results = tmp_path / "results"
        declared = study.grid(grid, "quick")
        files = []
        for place, row in enumerate(declared.scored):
            files.append(tmp_path / f"{place}.csv")
            save_scores(scored("mse", [[0.25], [1 / 3]], **row).drop(columns="cell"), files[-1])
        tabulate(files, results / f"studies/study/quick/grids/{grid}.csv")
        for cell in declared.cells:
            folder = Paths(results).folder(cell)
            folder.mkdir(parents=True, exist_ok=True)
            own = facts if cell is declared.cells[-1] else {}
            (folder / "provenance.json").write_text(json.dumps({**FACTS, **own}))
        return results

    return make


def test_a_record_has_the_scores_of_the_run_and_their_conditions(
    run: Run, study: Study, tmp_path: Path
):
    results, folder = run(commit=None), tmp_path / "record"
    facts = record_grid(study, "attacks", "quick", results, folder)
    grid = study.grid("attacks", "quick")
    assert facts == read_conditions(folder)["attacks"]
    assert (facts.cells, facts.cpu_hours) == (len(grid.cells), len(grid.cells) / 2)
    assert (facts.commits, facts.devices) == (["0123abc", "unknown"], ["cpu"])
    ours = read_scores([folder / "attacks.csv.gz"])
    theirs = read_scores([results / "studies/study/quick/grids/attacks.csv"])
    assert ours["value"].to_numpy() == pytest.approx(theirs["value"].to_numpy(), rel=1e-5)
    pd.testing.assert_frame_equal(ours.drop(columns="value"), theirs.drop(columns="value"))
    assert "a-machine" not in (folder / CONDITIONS).read_text()


def test_grids_are_recorded_one_by_one(run: Run, study: Study, tmp_path: Path):
    results, folder = run(), tmp_path / "record"
    assert finished_grids(study, "quick", results) == ["attacks"]
    record_grid(study, "attacks", "quick", results, folder)
    first = (folder / "attacks.csv.gz").read_bytes()
    record_grid(study, "models", "quick", run("models"), folder)
    assert list(read_conditions(folder)) == ["attacks", "models"]
    record_grid(study, "attacks", "quick", results, folder)
    assert (folder / "attacks.csv.gz").read_bytes() == first


def test_a_table_of_other_cells_than_the_grid_has_now_is_refused(
    run: Run, study: Study, tmp_path: Path
):
    """A longer record, by `gleak record --hours`, would be lost."""
    results = run()
    table = results / "studies/study/quick/grids/attacks.csv"
    scores = read_scores([table])
    save_scores(scores[scores["attack"] != "dlg"], table)
    with pytest.raises(ArtifactError, match=r"1 cells are not those .*dlg first; run: snakemake"):
        record_grid(study, "attacks", "quick", results, tmp_path / "record")


def test_an_unfinished_grid_is_refused_with_the_command_that_makes_it(
    run: Run, study: Study, tmp_path: Path
):
    with pytest.raises(ArtifactError, match=r"run: snakemake .*grids/models\.csv"):
        record_grid(study, "models", "quick", run(), tmp_path / "record")
    assert not (tmp_path / "record").exists()


def test_unreadable_conditions_are_named(tmp_path: Path):
    (tmp_path / CONDITIONS).write_text("attacks: {cells: many}")
    with pytest.raises(SpecError, match=r"conditions\.yaml: attacks.*cells"):
        read_conditions(tmp_path)


def test_only_pictures_of_reconstructions_are_copied(study: Study, tmp_path: Path):
    from PIL import Image

    drawn = tmp_path / "results/studies/study/quick"
    drawn.mkdir(parents=True)
    for figure in ("pictures", "errors"):
        Image.new("RGB", (30, 20), "red").save(drawn / f"{figure}.png")
    copied = [
        figure
        for figure in study.figures
        if record_picture(study, figure, "quick", tmp_path / "results", tmp_path / "record")
    ]
    assert copied == ["pictures"]
    with Image.open(tmp_path / "record/pictures.png") as picture:
        assert picture.convert("RGB").getpixel((0, 0)) == (255, 0, 0)


ROOT = Path(__file__).parents[2]
RECORDED = sorted((ROOT / "docs/results").glob(f"*/*/{CONDITIONS}"))


@pytest.fixture
def record(study: Study, tmp_path: Path, scored: Scored) -> Record:
    """A record of one grid: an error of 0.25 each."""
    folder = tmp_path / "study/quick"
    folder.mkdir(parents=True)
    rows = study.grid("attacks", "quick").scored
    table = pd.concat(scored("mse", [[0.25], [0.25]], **row) for row in rows)
    table.drop(columns="cell").to_csv(folder / "attacks.csv.gz", index=False)
    conditions = Conditions(
        commits=["0123456789abcdef"],
        versions=["gleak 1.0, torch 2.0"],
        devices=["cpu"],
        threads=[1],
        begun="2026-01-02",
        ended="2026-01-03",
        cells=3,
        cpu_hours=1.5,
    )
    (folder / CONDITIONS).write_text(f"attacks: {conditions.model_dump_json()}")
    return Record(study, "quick", folder, None)


def test_a_page_has_verdicts_figures_and_conditions(record: Record, tmp_path: Path):
    page = tmp_path / "study/quick.md"
    write_results(record, page)
    text = page.read_text()
    assert re.search(r"\| models +\| [\d.]+ (s|min|h) +\| `noise_costs`", text), text
    assert re.search(r">(MNIST|digits)", text)
    assert '<div class="numbers">' in text
    assert "![errors](quick/errors.png)" in text
    assert (record.folder / "errors.png").is_file()
    assert "0123456789ab | gleak 1.0, torch 2.0 | cpu, 1 threads" in " ".join(text.split())
    assert "accuracy" not in text
    assert "Headline claims" not in text


def test_a_page_begins_with_the_headline_claims(record: Record, tmp_path: Path):
    claim = Bound(
        id="small_errors",
        grid="attacks",
        metric="mse",
        claim="Errors are small",
        source="Table 1",
        at_most=1,
        headline=True,
        where={"attack": ["dlg"]},
    )
    study = replace(record.study, expectations=[claim])
    write_results(replace(record, study=study), tmp_path / "study/quick.md")
    text = (tmp_path / "study/quick.md").read_text()
    titles = [text.index(f"## {title}") for title in ("Headline claims", "errors", "All claims")]
    assert titles == sorted(titles)
    assert "![Headline claims](quick/headlines.png)" in text
    assert (record.folder / "headlines.png").is_file()
    assert "- **Errors are small** (Table 1; mse)" in text
    assert "**cannot tell** (" in text


def test_scores_of_an_earlier_declaration_are_neither_shown_nor_judged(
    record: Record, tmp_path: Path
):
    table = pd.read_csv(record.table("attacks"), keep_default_na=False)
    table["attack"] = table["attack"].replace("dlg", "dlg+restarts=3")
    table.to_csv(record.table("attacks"), index=False)
    write_results(record, tmp_path / "study/quick.md")
    text = (tmp_path / "study/quick.md").read_text()
    assert "Recorded before the cells of its grid were changed." in text
    assert re.search(r"\| attacks +\|", text[text.index("## Not run") :]), text
    assert "holds: 0, fails: 0, differs: 0, cannot tell: 0, no data: 0." in text


def test_claims_on_the_recorded_cells_of_an_unfinished_grid_are_judged(
    record: Record, tmp_path: Path
):
    table = pd.read_csv(record.table("attacks"), keep_default_na=False)
    table[table["attack"] != "dlg"].to_csv(record.table("attacks"), index=False)
    of = {"grid": "attacks", "metric": "mse", "claim": "c", "source": "Table 1", "at_most": 1}
    claims = [Bound(id=name, where={"attack": [name]}, **of) for name in ("cpl", "dlg")]
    unfinished = replace(record, study=replace(record.study, expectations=claims))
    verdicts = unfinished.verdicts.set_index("id")["verdict"]
    assert verdicts.to_dict() == {"cpl": "cannot tell", "dlg": "no data"}
    write_results(unfinished, tmp_path / "study/quick.md")
    text = (tmp_path / "study/quick.md").read_text()
    assert "Not all cells of its grid are recorded yet." in text
    assert re.search(r"\| attacks +\|", text[text.index("## Not run") :]), text


def test_without_a_record_there_is_no_page(study: Study, tmp_path: Path):
    assert records_of(study, tmp_path, None) == []
    with pytest.raises(ArtifactError, match="gleak record study --scale quick"):
        write_results(Record(study, "quick", tmp_path, None), tmp_path / "page.md")
