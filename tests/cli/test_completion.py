from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gleak.cli.completion import kinds, specs_of, studies
from gleak.core.registry import PACKAGES, load


def test_kinds():
    assert kinds("") == list(PACKAGES)
    assert kinds("da") == ["dataset"]


@pytest.mark.parametrize("kind", ["dataset", "attack"])
def test_names_of_a_kind(kind: str):
    assert specs_of(kind)("") == list(load(kind))


def test_names_of_all_kinds(study_folder: Path):
    assert {"cpl", "topk", "digits", "psnr"} <= set(specs_of()(""))
    assert specs_of()("idl") == ["idlg"]
    assert (studies(""), studies("x")) == (["cpl"], [])


@pytest.mark.parametrize(
    ("prefix", "offered"),
    [
        ("cpl+rest", ["cpl+restarts="]),
        ("cpl+restarts=2+rest", []),
        ("cpl+labels=k", ["cpl+labels=known"]),
        ("nothing+", []),
        ("cpl+labels+", []),
        ("topk+", []),
    ],
)
def test_fields_that_are_not_set_yet_and_their_choices(prefix: str, offered: list[str]):
    assert specs_of("attack")(prefix) == offered


def test_the_shell_is_answered(tmp_path: Path):
    pytest.importorskip("argcomplete")
    output, line = tmp_path / "completions", "gleak describe idl"
    asked = {
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(output),
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
    }
    code = "from gleak.cli.main import main; main()"
    subprocess.run([sys.executable, "-c", code], env={**os.environ, **asked}, check=False)
    assert output.read_text().split() == ["idlg"]
