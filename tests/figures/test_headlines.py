from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from gleak.figures.headlines import (
    choose_headlines,
    compare,
    list_headlines,
    write_overview,
)
from gleak.figures.judge import COLUMNS
from gleak.figures.verdict_table import save_headlines, tabulate_recorded, tabulate_verdicts
from gleak.studies.study import Study

ROW = {
    "source": "Table 1",
    "compared": "mean",
    "ours": "0.5",
    "interval": "[0.4, 0.6]",
    "found": "0.5",
    "n": 20,
    "verdict": "holds",
    "protocol": "the paper's",
    "corrected": "stands",
    "metric": "success rate",
}


def rows_of(*rows: dict[str, object]) -> pd.DataFrame:
    """Verdicts with the values of `ROW` where nothing else is given."""
    blank = dict.fromkeys(COLUMNS, "")
    return pd.DataFrame([{**blank, "paper": "–", **ROW, **row} for row in rows])


def marked(study: Study, *ids: str) -> Study:
    """The study with these claims as its headlines."""
    claims = [c.model_copy(update={"headline": c.id in ids}) for c in study.expectations]
    return replace(study, expectations=claims)


@pytest.fixture
def two(study: Study) -> Study:
    """The study with two claims, ``a`` and ``b``."""
    (claim,) = study.expectations
    claims = [claim.model_copy(update={"id": name}) for name in "ab"]
    return replace(study, expectations=claims)


def test_headlines_are_the_marked_claims_each_at_its_largest_scale_with_data(two: Study):
    small = rows_of({"id": "a"}, {"id": "b"})
    large = rows_of({"id": "a", "verdict": "no data"}, {"id": "b", "verdict": "fails"})
    found = choose_headlines(marked(two, "b", "a"), {"small": small, "paper": large})
    assert found[["id", "scale", "verdict"]].to_numpy().tolist() == [
        ["a", "small", "holds"],
        ["b", "paper", "fails"],
    ]
    only = choose_headlines(marked(two, "b"), {"small": small, "paper": large})
    assert only["id"].tolist() == ["b"]
    assert set(only["study"]) == {two.name}
    assert set(only["citation"]) == {two.paper}


def test_a_headline_without_data_is_a_headline(two: Study):
    table = rows_of({"id": "a", "verdict": "no data"})
    found = choose_headlines(marked(two, "a"), {"small": table})
    assert found["verdict"].tolist() == ["no data"]
    assert compare(two, found) == []
    assert "**no data**." in list_headlines(found)


def test_without_marks_claims_with_a_number_of_the_paper_are_taken(two: Study):
    table = rows_of({"id": "a"}, {"id": "b", "paper": "–; 0.4"})
    assert choose_headlines(two, {"small": table})["id"].tolist() == ["b"]
    table["paper"] = "–"
    assert choose_headlines(two, {"small": table})["id"].tolist() == ["a", "b"]


def test_claims_that_are_not_the_papers_are_no_headlines(two: Study, tmp_path: Path):
    ours = [c.model_copy(update={"source": "ours"}) for c in marked(two, "a").expectations]
    table = rows_of({"id": "a", "paper": "1"}, {"id": "b"})
    found = choose_headlines(replace(two, expectations=ours), {"small": table})
    assert found.empty
    (tmp_path / "two").mkdir()
    save_headlines(found, tmp_path / "two/headlines.csv")
    assert write_overview(tmp_path).read_text().startswith("# What holds of no papers")


def test_rows_of_the_picture_have_numbers_ranges_and_units(study: Study):
    claim = next(c for c in study.expectations if len(c.comparisons) == 1)
    row = {"id": claim.id, "group": "MNIST", "compared": "dlg - cpl", "paper": "86.2"}
    numbers = {"ours": "-2.1e-4", "interval": "[-∞, 3]", "found": "-2.1e-4"}
    (one,) = compare(study, rows_of({**row, **numbers}))
    assert (one.ours, one.interval, one.paper) == (-2.1e-4, (float("-inf"), 3), 86.2)
    assert one.claimed == (claim.comparisons[0].low, claim.comparisons[0].high)
    assert one.label == "MNIST: dlg − cpl"
    assert one.unit.endswith("success rate")
    assert one.unit.startswith("difference") is (claim.comparisons[0].minus is not None)
    (filled,) = compare(study, rows_of({**row, **numbers, "found": "4"}))
    assert math.isnan(filled.paper), "blind stands for one of our values, and for none of theirs"


def test_headlines_in_words_have_verdict_numbers_and_protocol():
    told = list_headlines(
        rows_of(
            {"claim": "A <is> better", "paper": "0.7", "verdict": "differs"},
            {"claim": "B", "group": "MNIST", "protocol": "iterations 2 for 3"},
            {"claim": "B", "group": "Adult", "verdict": "cannot tell", "needed": "9 victims would"},
        )
    )
    assert told.splitlines() == [
        r"- **A \<is> better** (Table 1; success rate): **differs**. 0.5 [0.4, 0.6], paper 0.7; "
        "n = 20; the paper's protocol.",
        "- **B** (Table 1; success rate):",
        "  - MNIST: **holds**. 0.5 [0.4, 0.6]; n = 20; protocol: iterations 2 for 3.",
        "  - Adult: **cannot tell** (9 victims would). 0.5 [0.4, 0.6]; n = 20; the paper's "
        "protocol.",
    ]


def test_the_overview_counts_and_lists_the_headlines_of_all_studies(tmp_path: Path):
    for name, verdict in (("cpl", "holds"), ("rog", "fails")):
        (tmp_path / name).mkdir()
        facts = {"study": name, "citation": f"Paper of {name}", "scale": "small", "claim": "C"}
        corrected = "stands" if verdict == "holds" else "does not stand"
        table = rows_of({**facts, "id": "c", "verdict": verdict, "corrected": corrected})
        save_headlines(table, tmp_path / name / "headlines.csv")
    page = write_overview(tmp_path)
    assert page == tmp_path / "headlines.md"
    text = page.read_text()
    assert text.startswith("# What holds of two papers\n")
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    assert ["[CPL](#cpl)", "1", "1", "0", "0", "0", "0", "1"] in lines
    assert ["all", "2", "1", "1", "0", "0", "0", "1"] in lines
    assert "Paper of rog. Records: [small](rog/small.md)." in text
    assert text.count('<span class="fails">fails</span>') == 1
    assert write_overview(tmp_path).read_text() == text


def test_the_verdict_is_first_and_the_identifier_is_not():
    table = rows_of({"id": "<id>", "claim": "<C>", "corrected": "does not stand"})
    page = tabulate_verdicts(table)
    assert page.index("holds") < page.index("&lt;C&gt;") < page.index("<code>&lt;id&gt;</code>")
    assert "<th>verdict</th><th>claim</th><th>protocol</th>" in page
    assert "not with Holm&#x27;s correction" in page


def test_a_comparison_has_a_line_of_its_own():
    several = {"compared": "a - b; a - c", "ours": "1; 2", "interval": "[0, 2]; [1, 3]"}
    page = tabulate_verdicts(rows_of({**several, "paper": "–; 4", "found": "1; 3"}))
    assert page.count("<tr>") == 3
    assert page.count('rowspan="2"') == 4
    assert re_in_order(page, "a − b", "[0, 2]", "–", "a − c", "[1, 3]", "found only: 3", "<td>4")


def re_in_order(text: str, *parts: str) -> bool:
    """Return True if the parts follow each other in a text."""
    place = 0
    for part in parts:
        place = text.find(part, place)
        if place < 0:
            return False
    return True


@pytest.mark.parametrize(
    ("group", "seen"),
    [
        ("MNIST", "<td>fails, 0.5 [0.4, 0.6]</td>"),
        ("digits", "<td>MNIST: fails, 0.5 [0.4, 0.6]<br>Adult: holds, 0.5 [0.4, 0.6]</td>"),
    ],
)
def test_a_run_is_beside_what_is_recorded(group: str, seen: str):
    run = rows_of({"id": "c", "group": "MNIST", "verdict": "fails"}, {"id": "c", "group": "Adult"})
    page = tabulate_recorded(rows_of({"id": "c", "group": group}), run, "quick")
    assert "<th>this run, quick</th>" in page
    assert seen in page


def test_what_a_run_does_not_judge_is_a_dash():
    page = tabulate_recorded(rows_of({"id": "c"}), rows_of({"id": "d"}), "quick")
    assert "<td>–</td></tr>" in page
