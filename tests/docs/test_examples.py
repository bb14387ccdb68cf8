"""The Python examples of pages, run in order in an empty folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, blocks

FILE = re.compile(r"# \S+\.py\n")


def examples(page: str) -> str:
    """The Python blocks of a page that are no files."""
    return "\n".join(block for block in blocks(page, "python") if not FILE.match(block))


def run(code: str, folder: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_examples_of_the_tutorial_recover_the_photographs(tmp_path: Path) -> None:
    printed = run(examples("docs/guide/tutorial.md"), tmp_path)
    assert float(re.search(r"^psnr +(\S+)$", printed, re.MULTILINE)[1]) > 99
    assert float(printed.splitlines()[-1]) > 20
    assert (tmp_path / "found.png").stat().st_size > 10_000


@pytest.mark.slow
def test_the_example_of_the_defences_compares_them(tmp_path: Path) -> None:
    *printed, completed, bound = run(examples("docs/guide/defenses.md"), tmp_path).splitlines()
    psnr = {line.split()[0]: float(line.split()[1]) for line in printed}
    assert list(psnr) == ["none", "topk+keep=0.1", "gaussian+std=1e-3", "soteria"]
    assert psnr["none"] > 99 > max(value for name, value in psnr.items() if name != "none")
    assert float(completed) > 99
    assert float(bound) == pytest.approx(0.196, abs=5e-4)


@pytest.mark.slow
def test_the_examples_of_audits_tell_the_broken_mechanism(tmp_path: Path) -> None:
    printed = run(examples("docs/guide/audited-epsilon.md"), tmp_path)
    audited, broken = printed.splitlines()
    epsilon, mu, ceiling = map(float, audited.split())
    assert 0 < mu < 1
    assert 1 < epsilon < 4.38 < ceiling
    assert broken == "True"
