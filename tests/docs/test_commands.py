"""The commands and paths on all pages are valid as written."""

from __future__ import annotations

import re
import shlex

import pytest

from gleak.cli.main import build_parser
from gleak.core.settings import Settings
from gleak.experiments.cell import LEVELS, Cell
from tests.docs.pages import PAGES, ROOT, TARGET, blocks, commands, starting, text_of

LARGEST_WIDTH = 160


def targets() -> list[tuple[str, str]]:
    found = ((page, path) for page in sorted(PAGES) for path in TARGET.findall(text_of(page)))
    return [(page, path) for page, path in dict.fromkeys(found) if "<" not in path]


@pytest.mark.parametrize(("page", "path"), targets())
def test_each_path_is_that_of_a_cell(page: str, path: str) -> None:
    texts = dict(zip(LEVELS, path.split("/"), strict=False))
    texts = {level: text for level, text in texts.items() if "." not in text or "=" in text}
    assert str(Cell.from_path(texts)) == "/".join(texts.values())


@pytest.mark.parametrize(("page", "line"), starting("gleak"))
def test_each_gleak_command_can_be_parsed(page: str, line: str) -> None:
    words = shlex.split(line)[1:]
    build_parser().parse_args([word for word in words if word not in ("[", "]")])


@pytest.mark.parametrize(("page", "line"), starting("snakemake"))
def test_each_configuration_has_valid_keys(page: str, line: str) -> None:
    _, _, given = line.partition("--config ")
    changes = dict(word.split("=", 1) for word in shlex.split(given) if "=" in word)
    Settings.read({"studies": "cpl", **changes})


def test_every_make_target_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    written = {
        line.split()[1] for page in PAGES for line in commands(page) if line.startswith("make ")
    }
    for page in PAGES:
        written |= set(re.findall(r"`make ([\w-]+)`", text_of(page)))
    assert written
    for target in written:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


@pytest.mark.parametrize("page", sorted(PAGES))
def test_each_python_block_can_be_compiled(page: str) -> None:
    for block in blocks(page, "python"):
        compile(block, page, "exec")
