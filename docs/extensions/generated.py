"""Sphinx extension: parts of pages that are generated from the code when the site is built.

A page contains ``<!-- generated: catalogue attack -->``, for example; when Sphinx reads the page,
the Markdown of that part is put in its place, and in that of the paragraph before it that says what
shows the part in the repository. The parts are the keys of `PARTS`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from sphinx.application import Sphinx

from docs.extensions.catalogue import describe_kind
from docs.extensions.command_line import describe_commands
from docs.extensions.configuration import describe_deployment, describe_settings
from docs.extensions.file_formats import describe_formats
from docs.extensions.python_api import describe_api, escape_stars
from docs.extensions.records import describe_record, write_records

PLACE = re.compile(
    r"^(?:\*In the repository: .*\*\n\n)?<!-- generated: (?P<part>[\w-]+)(?P<words>[^>]*) -->$",
    re.MULTILINE,
)
PARTS: dict[str, Callable[..., str]] = {
    "catalogue": describe_kind,
    "command-line": describe_commands,
    "configuration": describe_settings,
    "deployment": describe_deployment,
    "file-formats": describe_formats,
    "python-api": describe_api,
    "record": describe_record,
}


def fill(text: str) -> str:
    """Return the text of a page with its generated parts.

    Raises:
        KeyError: there is no part of that name.
    """
    return PLACE.sub(lambda found: PARTS[found["part"]](*found["words"].split()), text)


def fill_source(app: Sphinx, page: str, source: list[str]) -> None:
    """Fill the source of a page in place, as Sphinx's event ``source-read`` expects."""
    source[0] = fill(source[0])


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect to Sphinx."""
    app.connect("builder-inited", write_records)
    app.connect("source-read", fill_source)
    app.connect("autodoc-process-docstring", escape_stars)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
