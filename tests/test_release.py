"""What is published with a version names that version."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from gleak import __version__

ROOT = Path(__file__).parents[1]


def test_the_citation_and_the_changelog_have_the_version_of_the_library() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    sections = re.findall(r"^## (\d+\.\d+\.\d+) - (\d{4}-\d{2}-\d{2})$", changelog, re.MULTILINE)
    assert citation["version"] == __version__
    assert (__version__, str(citation["date-released"])) == sections[0]


def test_the_hooks_are_those_of_make_lint() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    entries = {hook["entry"] for repo in hooks["repos"] for hook in repo["hooks"]}
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    recipe = re.search(r"^lint:.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)[1]
    tools = re.findall(r"\$\(BIN\)/(\w+(?: format| check)?)", recipe)
    assert {f".venv/bin/{tool}" for tool in tools} == entries
