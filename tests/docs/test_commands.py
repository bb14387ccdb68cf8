"""The commands and paths on all pages are valid as written."""

from __future__ import annotations

import re
import shlex
from importlib.util import find_spec

import pytest
from snakemake.cli import get_argument_parser

from gleak.cli.main import build_parser
from gleak.core.settings import Settings
from gleak.studies.cell import LEVELS, Cell
from tests.docs.pages import PAGES, ROOT, TARGET, blocks, inline_commands, starting, text_of
from tests.test_makefile import TARGETS

INCOMPLETE = "the following arguments are required|expected one argument"


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
    build_parser().parse_args(shlex.split(line)[1:])


@pytest.mark.parametrize(("page", "line"), starting("gleak", inline_commands))
def test_each_gleak_command_in_a_text_is_one(
    page: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It may lack its arguments, or the last value, or ask for help."""
    try:
        build_parser().parse_args(shlex.split(line)[1:])
    except SystemExit as end:
        assert end.code == 0 or re.search(INCOMPLETE, capsys.readouterr().err)


@pytest.mark.parametrize(
    ("page", "line"), starting("snakemake") + starting("snakemake", inline_commands)
)
def test_each_snakemake_command_has_valid_options_and_keys(page: str, line: str) -> None:
    words = shlex.split(line.removeprefix("PYTHONPATH=. "))[1:]
    given = get_argument_parser().parse_args(words)
    changes = dict(word.split("=", 1) for word in given.config or ())
    Settings.read({"studies": "cpl", **changes})
    assert all((ROOT / path).is_dir() for path in [given.workflow_profile] if path)


@pytest.mark.parametrize(("page", "line"), starting("python") + starting("python", inline_commands))
def test_each_python_command_names_a_file_or_module(page: str, line: str) -> None:
    first, *rest = shlex.split(line)[1:]
    files = re.findall(r"^# (\S+\.py)$", text_of(page), re.MULTILINE)
    assert find_spec(rest[0]) if first == "-m" else first in files or (ROOT / first).is_file()


def test_every_make_target_exists() -> None:
    written = starting("make") + starting("make", inline_commands)
    assert written
    for page, line in written:
        assert shlex.split(line)[1] in TARGETS, page


@pytest.mark.parametrize("page", sorted(PAGES))
def test_each_python_block_can_be_compiled(page: str) -> None:
    for block in blocks(page, "python"):
        compile(block, page, "exec")
