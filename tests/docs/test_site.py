"""The site is built without a warning, and a browser finds nothing wrong with it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.assessment.test_report_page import page
from tests.docs.pages import ROOT, SITE

pytest.importorskip("sphinx", reason="an extra, not installed: make docs")
pytest.importorskip("playwright", reason="an extra, not installed: make docs")

from docs.check_site import browser_file, check_pages, check_searches, check_site, opened

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(browser_file() is None, reason="Chromium is not installed"),
]

FAULTY = """<!doctype html><html><body><article id="top">
<div style="width: 3000px">wide</div><img src="missing.png"><a href="#nowhere">1</a>
<a href="absent.html">2</a><a href="#top">3</a><script>undefined.name</script>
<script src="http://127.0.0.1:9/script.js"></script></article></body></html>"""


def test_the_site_has_no_faults(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html"]
    done = subprocess.run(
        [*command, str(SITE), str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert check_site(tmp_path) == []


def test_the_report_of_an_assessment_has_no_faults(tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text(page())
    with opened() as browser:
        assert list(check_pages(browser, tmp_path)) == []


def test_faults_are_found(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(FAULTY)
    with opened() as browser:
        faults = "\n".join(check_pages(browser, tmp_path))
    for expected in (
        "400 pixels wide: the page is 30",
        "1400 pixels wide: the page is 30",
        "pictures are missing: ['missing.png']",
        "broken link page.html#nowhere",
        "broken link absent.html#",
        "error of a script",
        "request to the network: http://127.0.0.1:9/script.js",
    ):
        assert expected in faults
    assert "#top" not in faults


def test_a_search_that_finds_nothing_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "search.html").write_text('<p class="search-summary">Nothing found.</p>')
    with opened() as browser:
        faults = list(check_searches(browser, tmp_path))
    assert all("does not find" in fault for fault in faults)
    assert faults
