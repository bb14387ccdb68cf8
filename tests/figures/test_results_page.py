"""Pages of records, and those in the documentation, which their scores determine."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from gleak.core.errors import ArtifactError
from gleak.figures.recorded import CONDITIONS, Conditions
from gleak.figures.results_page import Record, records_of, write_results
from gleak.studies.study import Study, load_study

ROOT = Path(__file__).parents[2]
RECORDED = sorted((ROOT / "docs/results").glob(f"*/*/{CONDITIONS}"))
FACTS = Conditions(
    commits=["0123456789abcdef"],
    versions=["gleak 1.0, torch 2.0"],
    devices=["cpu"],
    threads=[1],
    begun="2026-01-02",
    ended="2026-01-03",
    cells=3,
    cpu_hours=1.5,
)


@pytest.fixture
def record(study: Study, tmp_path: Path, scored: Callable[..., pd.DataFrame]) -> Record:
    """A record of one grid: an error of 0.25 each."""
    folder = tmp_path / "study/quick"
    folder.mkdir(parents=True)
    rows = study.grid("attacks", "quick").scored
    table = pd.concat(scored("mse", [[0.25], [0.25]], **row) for row in rows)
    table.drop(columns="cell").to_csv(folder / "attacks.csv.gz", index=False)
    (folder / CONDITIONS).write_text(f"attacks: {FACTS.model_dump_json()}")
    return Record(study, "quick", folder, None)


def test_a_page_has_verdicts_figures_and_conditions(record: Record, tmp_path: Path):
    page = tmp_path / "study/quick.md"
    write_results(record, page)
    text = page.read_text()
    assert re.search(r"\| models +\| [\d.]+ (s|min|h) +\| `noise_costs`", text), text
    assert "| MNIST" in text or "| digits" in text
    assert "![errors](quick/errors.png)" in text
    assert (record.folder / "errors.png").is_file()
    assert "0123456789ab | gleak 1.0, torch 2.0 | cpu, 1 threads" in " ".join(text.split())
    assert "accuracy" not in text


def test_scores_of_an_earlier_declaration_are_not_shown(record: Record, tmp_path: Path):
    table = pd.read_csv(record.table("attacks"), keep_default_na=False)
    table[table["attack"] != "dlg"].to_csv(record.table("attacks"), index=False)
    write_results(record, tmp_path / "study/quick.md")
    text = (tmp_path / "study/quick.md").read_text()
    assert "Recorded before the cells of its grid were changed." in text
    assert re.search(r"\| attacks +\|", text[text.index("## Not run") :]), text


def test_scores_of_cells_that_the_study_lost_are_not_judged(record: Record, tmp_path: Path):
    table = pd.read_csv(record.table("attacks"), keep_default_na=False)
    table["attack"] = table["attack"].replace("dlg", "dlg+restarts=3")
    table.to_csv(record.table("attacks"), index=False)
    write_results(record, tmp_path / "study/quick.md")
    text = (tmp_path / "study/quick.md").read_text()
    assert "holds: 0, fails: 0, cannot tell: 0, no data: 0." in text


def test_without_a_record_there_is_no_page(study: Study, tmp_path: Path):
    assert records_of(study, tmp_path, None) == []
    with pytest.raises(ArtifactError, match="gleak record study --scale quick"):
        write_results(Record(study, "quick", tmp_path, None), tmp_path / "page.md")


def rows_of(page: str) -> list[dict[str, str]]:
    """The rows of all tables of a page that have an identifier, by heading."""
    rows, headings = [], []
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|"):
            headings = []
        elif not headings:
            headings = cells
        elif "id" in headings and not cells[0].startswith(":-"):
            rows.append(dict(zip(headings, cells, strict=True)))
    return rows


@pytest.mark.slow
@pytest.mark.parametrize("conditions", RECORDED, ids=lambda path: "/".join(path.parts[-3:-1]))
def test_the_headlines_of_a_study_are_those_of_its_record(conditions: Path, tmp_path: Path):
    folder = conditions.parent
    file = ROOT / f"studies/{folder.parent.name}.yaml"
    published = file.parent / "published" / f"{file.stem}.csv"
    copied = tmp_path / folder.name
    copied.mkdir()
    for path in folder.iterdir():
        (copied / path.name).write_bytes(path.read_bytes())
    scale = folder.name
    record = Record(load_study(file), scale, copied, published if published.is_file() else None)
    write_results(record, tmp_path / "page.md")
    page, headlines = (
        path.read_text() for path in (tmp_path / "page.md", folder.parent.with_suffix(".md"))
    )
    (counts,) = re.findall(r"^holds: .*$", page, re.MULTILINE)
    assert counts in headlines
    judged = [[row[key] for key in ("id", "verdict", "ours", "interval")] for row in rows_of(page)]
    assert rows_of(headlines)
    for row in rows_of(headlines):
        facts = [row["id"].strip("`"), row["verdict"], row["ours"], row["95% interval"]]
        assert facts in judged
