"""Generated parts of pages are complete, and valid Markdown."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs.extensions.catalogue import anchor, describe_kind
from docs.extensions.command_line import describe_commands
from docs.extensions.configuration import describe_settings
from docs.extensions.markdown import cell, plain, table
from gleak.cli.main import build_parser
from gleak.core.registry import PACKAGES, load
from gleak.core.settings import Settings
from tests.docs.pages import PAGES, ROOT, SITE, text_of

LINK = re.compile(r"\]\(#([\w-]+)\)")


@pytest.mark.parametrize("kind", PACKAGES)
def test_an_entry_has_all_fields_with_descriptions(kind: str) -> None:
    entries = re.split(r"^\(([\w-]+)\)=$", describe_kind(kind), flags=re.MULTILINE)
    found = dict(zip(entries[1::2], entries[2::2], strict=True))
    assert found.keys() == {anchor(cls) for cls in load(kind).values()}
    for cls in load(kind).values():
        for key, field in cls.model_fields.items():
            description = cell(plain(field.description or ""))
            rows = [row for row in found[anchor(cls)].splitlines() if row.startswith(f"| `{key}` ")]
            assert [description in row for row in rows] == [True], (cls.name, key)


def test_each_kind_is_in_the_catalogue() -> None:
    pages = "".join(text_of(page) for page in PAGES if page.startswith("docs/reference/"))
    shown = re.findall(r"generated: catalogue (\w+)", pages)
    assert sorted(shown) == sorted(PACKAGES)


@pytest.mark.parametrize("page", [page for page in PAGES if LINK.search(text_of(page))])
def test_links_to_entries_exist(page: str) -> None:
    known = {anchor(cls) for kind in PACKAGES for cls in load(kind).values()}
    kinds = {name.partition("-")[0] for name in known}
    for name in LINK.findall(text_of(page)):
        assert name in known or name.partition("-")[0] not in kinds, name


def test_every_command_and_option_is_described() -> None:
    text, usage = describe_commands(), build_parser().format_help()
    for command in re.findall(r"^    (\w+)  ", usage, re.MULTILINE):
        assert f"## `gleak {command}`" in text


def test_every_key_of_the_configuration_is_described() -> None:
    text = describe_settings()
    assert all(f"| `{key}` |" in text for key in Settings.model_fields)
    assert "Undefined" not in text


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith("docs/reference/")])
def test_the_repository_says_what_prints_a_generated_part(page: str) -> None:
    text = text_of(page)
    assert text.count("\n*In the repository: ") == text.count("\n<!-- generated: ")


def test_a_part_takes_the_place_of_what_the_repository_says() -> None:
    pytest.importorskip("sphinx", reason="an extra: make docs")
    from docs.extensions.generated import fill
    from docs.extensions.records import describe_record

    text = "# T\n\n*In the repository: this.*\n\n<!-- generated: record cpl -->\n"
    assert fill(text) == f"# T\n\n{describe_record('cpl')}\n"


def test_empty_columns_are_left_out() -> None:
    assert table(("a", "b"), [["1", ""], ["2|3", ""]]) == "| a |\n| --- |\n| 1 |\n| 2\\|3 |"
    assert table(("a",), []) == ""


def test_only_code_is_marked_up() -> None:
    assert plain("a * b, `<x> *`, <y>") == r"a \* b, `<x> *`, \<y>"


def test_every_format_and_its_arrays_are_described() -> None:
    pytest.importorskip("docstring_parser", reason="an extra: make docs")
    from docs.extensions.file_formats import describe_formats
    from gleak.artifacts.schema import array_fields, attribute_fields
    from gleak.artifacts.store import Artifact

    text = describe_formats()
    for cls in Artifact.__subclasses__():
        section = text.partition(f"## `{cls.format}`")[2].partition("\n## ")[0]
        assert all(f"`/{name}" in section for name in array_fields(cls)), cls.format
        own = attribute_fields(cls).keys() - attribute_fields(Artifact).keys()
        assert all(f"| `{name}` |" in section for name in own), cls.format


@pytest.mark.slow
def test_the_rule_graph_is_that_of_the_workflow(tmp_path: Path) -> None:
    """If not: ``make graph``."""
    drawn = tmp_path / "rulegraph.svg"
    subprocess.run([sys.executable, "docs/draw_rulegraph.py", drawn], cwd=ROOT, check=True)
    assert drawn.read_bytes() == (SITE / "rulegraph.svg").read_bytes()
