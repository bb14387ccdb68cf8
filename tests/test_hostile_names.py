"""Names that are code are texts on every page, by its HTML and in Chromium."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from gleak.assessment.charts import Charts
from gleak.assessment.findings import Report
from gleak.assessment.report_page import ShownImage, ShownRecord, page_of
from gleak.figures.judge import COLUMNS, write_page
from gleak.studies.study import load_study
from tests.assessment.test_report_page import DOT, report
from tests.hostile_names import ALL, NAMES, Page, shown

CLOSED = {"verdict", "better", "clients", "cell"}
"""Keys of values that are not those of a user."""


def with_names(value: Any, key: str = "") -> Any:
    """Replace each text by the names."""
    if isinstance(value, dict):
        return {name: with_names(each, name) for name, each in value.items()}
    if isinstance(value, list):
        return [with_names(each) for each in value]
    return ALL if isinstance(value, str) and key not in CLOSED else value


def assessment() -> str:
    content = with_names(report().model_dump(mode="json"))
    return page_of(
        Report.model_validate(content),
        [ShownImage(ALL, DOT, DOT)],
        [ShownRecord(ALL, [(ALL, ALL, ALL, ALL)], 2)],
        {ALL: {ALL: Charts(DOT, DOT)}},
    )


def verdicts() -> str:
    study = load_study(Path(__file__).parent / "figures/study.yaml")
    figures = {
        name: spec.model_copy(update={"title": ALL, "reproduces": ALL})
        for name, spec in study.figures.items()
    }
    closed = {"verdict": "holds", "needed": "", "n": "2"}
    rows = [
        {**dict.fromkeys(COLUMNS, ALL), **closed, "id": claim.id, "level": claim.level}
        for claim in study.claims("quick")
    ]
    hostile = replace(study, title=ALL, paper=ALL, figures=figures)
    return write_page(hostile, "quick", pd.DataFrame(rows, columns=COLUMNS))


@pytest.mark.parametrize("make", [assessment, verdicts])
def test_names_are_text_in_the_html_of_a_page(make: Any) -> None:
    page = Page(make())
    assert page.code == []
    assert all(page.text.count(name) > 5 for name in NAMES)


@pytest.mark.slow
@pytest.mark.parametrize("make", [assessment, verdicts])
def test_names_are_text_in_a_browser(make: Any) -> None:
    page = shown(make())
    assert page.code == []
    assert all(page.text.count(name) > 5 for name in NAMES)


UNESCAPED = [
    f"<p>{NAMES[2]}</p>",
    f"<p>{NAMES[4]}</p>",
    f"""<p title="{NAMES[5]}" tabindex="0">a</p>""",
    f"""<a href="#" onclick="String('{NAMES[6]}')">a</a>""",
    f"""<a href="{NAMES[7]}">a</a>""",
]


@pytest.mark.parametrize("html", UNESCAPED)
def test_code_that_is_not_escaped_is_seen_in_the_html(html: str) -> None:
    assert Page(html).code


@pytest.mark.slow
@pytest.mark.parametrize("html", UNESCAPED)
def test_code_that_is_not_escaped_is_seen_in_a_browser(html: str) -> None:
    use = "for (const event of ['click', 'focus']) each.dispatchEvent(new MouseEvent(event))"
    with pytest.raises(AssertionError, match="a name ran as code"):
        shown(html, f"document.querySelectorAll('a, p').forEach(each => {{ {use} }})")
