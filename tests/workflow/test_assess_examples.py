"""The examples of assessments, followed to the letter from an empty folder."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.guide import BLOCK, ROOT, follow

pytestmark = pytest.mark.slow

DEFENCE = re.compile(r"^\| `(\S+)` \| (\d+) of (\d+) \|", re.MULTILINE)
MINUTES = re.compile(r"about \S+ minutes")


def lines_of(text: str) -> list[str]:
    """Its lines without estimated times, which depend on the machine."""
    return MINUTES.sub("about N minutes", text).splitlines()


@pytest.mark.parametrize(
    ("name", "deployment"), [("assess-images", "hospital"), ("assess-records", "registry")]
)
def test_an_example_gives_what_its_page_says(tmp_path: Path, name: str, deployment: str) -> None:
    page = (ROOT / f"docs/guide/{name}.md").read_text(encoding="utf-8")
    printed = lines_of(follow(tmp_path, page, modules=ROOT))
    shown = [
        line for kind, text in BLOCK.findall(page) if kind == "text" for line in lines_of(text)
    ]
    assert shown
    assert [line for line in shown if line not in printed] == []
    report = json.loads((tmp_path / f"{deployment}-report/report.json").read_text())
    found = [
        (each["defense"], row["above"], row["clients"])
        for each in report["defenses"]
        for row in each["exposures"]
    ]
    stated = [(text, int(above), int(clients)) for text, above, clients in DEFENCE.findall(page)]
    assert stated == found
