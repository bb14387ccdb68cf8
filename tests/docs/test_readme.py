"""The README is short, complete, and its example works when it is pasted into ``python``."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from PIL import Image

from tests.docs.pages import ROOT, blocks, text_of

README = "README.md"
MOST_WORDS = 800


def test_it_is_read_in_a_few_minutes() -> None:
    assert len(text_of(README).split()) <= MOST_WORDS


def test_every_study_is_listed_with_its_page() -> None:
    page = r"^\| \[`(\w+)`\]\(docs/(?:papers|results)/(\w+)\.md\)"
    listed = re.findall(page, text_of(README), re.MULTILINE)
    studies = {path.stem for path in (ROOT / "studies").glob("*.yaml")}
    assert {name for name, _ in listed} == studies
    assert all(name == page for name, page in listed)


def test_the_example_recovers_images_when_it_is_pasted_into_python(tmp_path: Path) -> None:
    """At the interactive prompt, where a blank line ends a block; numbers are as written there."""
    (example,) = blocks(README, "python")
    session = subprocess.run(
        [sys.executable, "-i", "-q"],
        input=example,
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "Error" not in session.stderr, session.stderr
    exact, defended = map(float, re.findall(r"^\d+\.\d+$", session.stdout, re.MULTILINE))
    assert [float(text) for text in re.findall(r"# ([\d.]+)$", example, re.MULTILINE)] == [exact]
    (approximate,) = re.findall(r"# about (\d+)$", example, re.MULTILINE)
    assert abs(defended - float(approximate)) < 2
    with Image.open(tmp_path / "recovered.png") as picture:
        assert picture.width > picture.height
