"""Names are shown as they are, whatever the format, and are no code."""

from __future__ import annotations

import json

import pytest
from docutils.core import publish_parts

from gleak.core.markup import one_line, to_json, to_markdown, to_report, to_rst
from tests.hostile_names import ALL, NAMES, Page

TEXTS = [*NAMES, ALL, "a\n\n.. raw:: html\n\n   <b>", "a_ and b__", "x: y", "1 < 2", "$a$ \\(b\\)"]


@pytest.mark.parametrize("text", TEXTS)
def test_rst_has_the_text_alone(text: str) -> None:
    made = publish_parts(to_rst(text), writer="html", settings_overrides={"report_level": 1})
    page = Page(made["body"])
    assert page.text == to_report(text)
    assert page.code == []
    assert made["body"].count("<") == 2  # of the paragraph


@pytest.mark.parametrize("text", TEXTS)
def test_markdown_has_the_text_alone(text: str) -> None:
    markdown_it = pytest.importorskip("markdown_it", reason="an extra, not installed: make docs")
    for html in (False, True):
        page = Page(markdown_it.MarkdownIt("commonmark", {"html": html}).render(to_markdown(text)))
        assert page.code == []
        assert page.text == one_line(text).replace("*d*", "d")


@pytest.mark.parametrize("text", TEXTS)
def test_what_is_written_into_a_script_does_not_end_it(text: str) -> None:
    written = to_report(text)
    assert not set("<{}\n") & set(json.dumps(written))
    assert "<" not in to_json([text]) + to_rst(text)
    assert json.loads(to_json([text])) == [text]
    assert to_report("a 'b' & \"c\"") == "a 'b' & \"c\""


def test_common_texts_are_not_changed() -> None:
    for text in ("MSE*, 95% [0.1, 0.2]; (a) 3e-4", "Data: mnist, 28 × 28", "test_accuracy"):
        assert to_markdown(text) == text
        assert to_report(text) == text
