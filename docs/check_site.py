"""Opens each page of the built site in headless Chromium and reports what is wrong with it.

``python docs/check_site.py docs/_build/html`` exits with 1 if there are faults. They are: a page
wider than the window, a picture that does not load, a broken link or anchor inside the site, an
equation that is not typeset, an error of a script, a request to the network, and a search that does
not find a page.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import which
from urllib.parse import unquote, urldefrag, urlparse

from playwright.sync_api import BrowserContext, Page, sync_playwright

WIDTHS = (400, 1400)
SEARCHES = {"soteria": "reference/defenses.html", "invertgrad": "reference/attacks.html"}
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
TYPESET = "() => !window.MathJax || !MathJax.startup || MathJax.startup.promise.then(() => true)"
WIDTH = "document.documentElement.scrollWidth"
UNTYPESET = "document.querySelectorAll('mjx-merror').length"
TOO_WIDE = """width => [...document.querySelectorAll('article *')]
  .filter(each => each.getBoundingClientRect().right > width + 1 && !each.closest(
    '.table-wrapper, pre, mjx-container'))
  .map(each => each.tagName + ' ' + each.textContent.trim().slice(0, 60)).slice(0, 3)"""
MISSING = """[...document.images].filter(each => !each.complete || !each.naturalWidth)
  .map(each => each.getAttribute('src'))"""
FINISHED = "!!document.querySelector('.search-summary')?.textContent.trim()"
RESULTS = "[...document.querySelectorAll('#search-results li a')].map(each => each.href)"
LINKS = "[...document.querySelectorAll('a[href]')].map(each => each.href)"
NAMES = "[...document.querySelectorAll('[id]')].map(each => each.id)"


def browser_file() -> str | None:
    """Return the path of an installed Chromium, None if there is none."""
    return next(filter(None, map(which, BROWSERS)), None)


@contextmanager
def opened() -> Iterator[BrowserContext]:
    """Open a browser with an empty profile."""
    with tempfile.TemporaryDirectory() as profile, sync_playwright() as playwright:
        browser = playwright.chromium.launch_persistent_context(
            profile, executable_path=browser_file(), headless=True, args=list(FLAGS)
        )
        yield browser
        browser.close()


def check_site(site: Path) -> list[str]:
    """Open all pages of a site and return the faults, one line each.

    Args:
        site: folder of the built pages.
    """
    with opened() as browser:
        return [*check_pages(browser, site), *check_searches(browser, site)]


def check_pages(context: BrowserContext, site: Path) -> Iterator[str]:
    """Yield the faults of single pages, then the broken links between them."""
    links: dict[Path, set[str]] = {}
    names: dict[Path, set[str]] = {}
    for file in sorted(site.rglob("*.html")):
        if "_static" in file.parts:
            continue
        where = str(file.relative_to(site))
        page = context.new_page()
        events = watch(page)
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            page.goto(file.resolve().as_uri())
            page.wait_for_function(TYPESET)
            yield from (f"{where}, {width} pixels wide: {fault}" for fault in look(page, width))
        links[file.resolve()] = set(page.evaluate(LINKS))
        names[file.resolve()] = set(page.evaluate(NAMES))
        page.close()
        yield from (f"{where}: {event}" for event in dict.fromkeys(events))
    yield from broken_links(site, links, names)


def watch(page: Page) -> list[str]:
    """Return a list to which errors of scripts and requests to the network will be added."""
    events: list[str] = []
    page.on("pageerror", lambda error: events.append(f"error of a script: {error}"))
    page.on(
        "request",
        lambda request: (
            events.append(f"request to the network: {request.url}")
            if request.url.startswith("http")
            else None
        ),
    )
    return events


def look(page: Page, width: int) -> Iterator[str]:
    """Yield the faults of the page as it is shown now."""
    page.evaluate("document.querySelectorAll('img').forEach(each => { each.loading = 'eager' })")
    page.wait_for_load_state("load")
    if (shown := page.evaluate(WIDTH)) > width:
        yield f"the page is {shown} pixels wide: {page.evaluate(TOO_WIDE, width)}"
    if missing := page.evaluate(MISSING):
        yield f"pictures are missing: {missing}"
    if count := page.evaluate(UNTYPESET):
        yield f"{count} equations are not typeset"


def broken_links(
    site: Path, links: dict[Path, set[str]], names: dict[Path, set[str]]
) -> Iterator[str]:
    """Yield the links to files of the site, or places in them, that do not exist."""
    for file, found in links.items():
        for link in sorted(found):
            address, anchor = urldefrag(link)
            if urlparse(address).scheme != "file":
                continue
            target = Path(unquote(urlparse(address).path))
            known = not anchor or target not in names or unquote(anchor) in names[target]
            if not target.is_file() or not known:
                yield f"{file.relative_to(site.resolve())}: broken link {target.name}#{anchor}"


def check_searches(context: BrowserContext, site: Path) -> Iterator[str]:
    """Yield the words whose search does not find their page."""
    for word, wanted in SEARCHES.items():
        page = context.new_page()
        page.goto(f"{(site / 'search.html').resolve().as_uri()}?q={word}")
        page.wait_for_function(FINISHED)
        found = page.evaluate(RESULTS)
        page.close()
        if not any(wanted in link for link in found):
            yield f"search for {word!r} does not find {wanted}: {found[:5]}"


if __name__ == "__main__":
    FAULTS = check_site(Path(sys.argv[1]))
    print("\n".join(FAULTS) or "no faults")
    sys.exit(bool(FAULTS))
