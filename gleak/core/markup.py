"""Texts of users in formats with markup: each is shown as it is, and none is code."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

IN_MARKDOWN = re.compile(r"[\\<&`$|]|\](?=[(\[])")
IN_RST = re.compile(r"[\\*`_|>]|:(?=\S)|^[^\w\s]")
IN_SCRIPT = str.maketrans("<{}", "‹()")
"""Snakemake writes texts into scripts of its report without escaping them, and replaces braces."""


def to_markdown(text: str) -> str:
    """Return a text as Markdown in one line: without HTML, code, links and equations."""
    return IN_MARKDOWN.sub(r"\\\g<0>", one_line(text))


def table_in_markdown(table: pd.DataFrame) -> str:
    """Return a table whose cells are Markdown, without its index."""
    return str(table.astype(str).to_markdown(index=False, disable_numparse=True))


def to_rst(text: str) -> str:
    """Return `to_report` as reStructuredText, without roles, links and directives."""
    return IN_RST.sub(r"\\\g<0>", to_report(text))


def to_report(text: str) -> str:
    """Return a text in one line for Snakemake's report, with other characters for ``<{}``."""
    return one_line(text).translate(IN_SCRIPT)


def to_json(value: Any) -> str:
    """Return a value as JSON that may stand in a script of Snakemake's report."""
    return json.dumps(value).replace("<", "\\u003c")


def one_line(text: str) -> str:
    """Return a text without line breaks and repeated spaces."""
    return " ".join(text.split())
