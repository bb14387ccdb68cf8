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


def test_names_of_all_kinds():
    assert {"cpl", "topk", "digits", "psnr"} <= set(specs_of()(""))
    assert specs_of()("idl") == ["idlg"]


def test_fields_that_are_not_set_yet():
    offered = specs_of("attack")("cpl+restarts=2+")
    assert "cpl+restarts=2+start=" in offered
    assert "cpl+restarts=2+restarts=" not in offered
    assert specs_of("attack")("cpl+rest") == ["cpl+restarts="]


def test_values_of_fields_with_choices():
    assert specs_of("attack")("cpl+labels=k") == ["cpl+labels=known"]


@pytest.mark.parametrize("prefix", ["nothing+", "cpl+labels+", "topk+"])
def test_nothing_is_offered_for_what_is_no_spec_of_the_kind(prefix: str):
    assert specs_of("attack")(prefix) == []


def test_studies(study_folder: Path):
    assert studies("") == ["cpl"]
    assert studies("x") == []


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
