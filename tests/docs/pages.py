"""Pages of the documentation, and the blocks of code in them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SITE = ROOT / "docs"
TOP = (ROOT / "README.md", ROOT / "CONTRIBUTING.md")
WRITTEN = {*SITE.glob("results/*/*.md"), SITE / "reference/changelog.md"}  # not by hand
PAGES = {
    str(path.relative_to(ROOT)): path for path in (*TOP, *SITE.rglob("*.md")) if path not in WRITTEN
}
COMMENT = re.compile(r"\s#.*$")
JOINED = re.compile(r"\s(?:&&|\|\|)\s")
BLOCK = re.compile(r"^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"(?<!`)`(?P<text>[^`]+)`")
TARGET = re.compile(r"results/artifacts/([^\s`]+)")


def text_of(page: str) -> str:
    return PAGES[page].read_text(encoding="utf-8")


def blocks(page: str, language: str) -> list[str]:
    found = BLOCK.finditer(text_of(page))
    return [block["text"] for block in found if block["language"] == language]


def commands(page: str) -> Iterator[str]:
    """The commands of a page's blocks; a backslash at the end continues a line."""
    for block in blocks(page, "sh"):
        for line in block.replace("\\\n", " ").splitlines():
            yield from (each.strip() for each in JOINED.split(COMMENT.sub("", line)))


def inline_commands(page: str) -> Iterator[str]:
    """What is written as code in the text of a page."""
    for found in INLINE.finditer(BLOCK.sub("", text_of(page))):
        yield from (" ".join(each.split()) for each in JOINED.split(found["text"]))


def starting(name: str, of: Callable[[str], Iterator[str]] = commands) -> list[tuple[str, str]]:
    """All commands that run a program, with their pages."""
    start = re.compile(rf"(?:PYTHONPATH=\. )?(?:\.venv/bin/)?{name}\b(?=[ ])")
    return [
        (page, command)
        for page in sorted(PAGES)
        for command in dict.fromkeys(of(page))
        if start.match(command)
    ]
