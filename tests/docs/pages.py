"""Pages of the documentation, and the blocks of code in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SITE = ROOT / "docs"
PAGES = {str(path.relative_to(ROOT)): path for path in (ROOT / "README.md", *SITE.rglob("*.md"))}
PAGES.pop("docs/reference/changelog.md", None)
BLOCK = re.compile(r"^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)
TARGET = re.compile(r"results/artifacts/([^\s`]+)")


def text_of(page: str) -> str:
    return PAGES[page].read_text(encoding="utf-8")


def blocks(page: str, language: str) -> list[str]:
    found = BLOCK.finditer(text_of(page))
    return [block["text"] for block in found if block["language"] == language]


def commands(page: str) -> Iterator[str]:
    """The command lines of a page; a backslash at the end continues a line."""
    for block in blocks(page, "sh"):
        for line in block.replace("\\\n", " ").splitlines():
            yield line.partition("  #")[0].strip()


def starting(name: str) -> list[tuple[str, str]]:
    """All command lines that start with a command, with their pages."""
    return [
        (page, line)
        for page in sorted(PAGES)
        for line in dict.fromkeys(commands(page))
        if line.removeprefix("PYTHONPATH=. ").startswith(f"{name} ")
    ]
