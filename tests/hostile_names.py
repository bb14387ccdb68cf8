"""Names that are code where they are not escaped, and a browser that shows whether they ran."""

from __future__ import annotations

import subprocess
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory

import pytest

NAMES = (
    "it's",
    'a "b" c',
    "</script><script>ran=1</script>",
    "<!--<script>",
    "<img src=x onerror=ran=1>",
    '" onmouseover="ran=1" autofocus onfocus="ran=1',
    "');ran=1;('",
    "javascript:ran=1",
    "[a](javascript:ran=1)",
    "`${ran=1}`",
    "`a <javascript:ran=1>`_",
    ".. include:: /etc/hostname",
    ":math:`a` |b| c_ *d*",
    "&lt;b&gt;",
    "a\\<b>",
)
ALL = " / ".join(NAMES)
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
    *("--virtual-time-budget=20000", "--dump-dom"),
)
PROBE = """<script id="probe">
addEventListener('error', event => {{ document.body.dataset.error = event.message }}, true);
addEventListener('load', () => setTimeout(() => {{
  setTimeout(() => {{ document.body.dataset.ran = String('ran' in window) }}, 500);
  {steps}
}}, 500));
</script>"""


class Page(HTMLParser):
    """Text of a page, and the tags and attributes that could be code."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.code: list[tuple[str, str, str]] = []
        self.attributes: dict[str, str | None] = {}
        self.feed(html)

    @property
    def text(self) -> str:
        return " ".join("".join(self.texts).split())

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "iframe", "object", "embed") and ("id", "probe") not in attrs:
            self.code.append((tag, "", ""))
        self.attributes.update(attrs)
        for name, value in attrs:
            script = "javascript:" in (value or "") and name in ("href", "src", "action")
            if name.startswith("on") or script or (tag, value) == ("img", "x"):
                self.code.append((tag, name, value or ""))


@cache
def chromium() -> str:
    """The path of Chromium; skips the test if there is none, or none that starts."""
    found = next(filter(None, map(which, BROWSERS)), None)
    if found is None:
        pytest.skip("Chromium is not installed: apt-get install chromium")
    with TemporaryDirectory() as folder:
        done = opened(found, "about:blank", folder)
    if "<html" not in done.stdout:
        pytest.skip(f"{found} cannot be started: {done.stderr[-200:]}")
    return found


def opened(browser: str, address: str, folder: str) -> subprocess.CompletedProcess[str]:
    """Open a page with an empty profile in a folder, and print what it has become."""
    command = [browser, *FLAGS, f"--user-data-dir={folder}/profile", address]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def shown(html: str, steps: str = "") -> Page:
    """Return what a browser makes of a page; fails if code of a name has run.

    Args:
        html: the page.
        steps: JavaScript that is run when it has been loaded.
    """
    browser = chromium()
    with TemporaryDirectory() as folder:
        file = Path(folder) / "page.html"
        file.write_text(html + PROBE.format(steps=steps), encoding="utf-8")
        done = opened(browser, file.as_uri(), folder)
    assert 'data-ran="true"' not in done.stdout, "a name ran as code"
    assert 'data-ran="false"' in done.stdout, done.stderr
    assert "data-error" not in done.stdout
    return Page(done.stdout)
