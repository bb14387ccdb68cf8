"""Markdown that is written by the generators of pages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from inspect import getdoc

CODE = re.compile(r"(`+[^`]+`+)")
SPECIAL = re.compile(r"([*<])")


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table without its empty columns; empty if it has no rows."""
    if not rows:
        return ""
    shown = [column for column in range(len(headings)) if any(row[column] for row in rows)]
    lines = [[headings[column] for column in shown], ["---"] * len(shown)]
    lines += [[cell(row[column]) for column in shown] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def cell(text: str) -> str:
    """Return Markdown as the content of a table's cell."""
    return " ".join(text.split()).replace("|", r"\|")


def plain(text: str) -> str:
    """Return text as Markdown in which only code is marked up."""
    parts = CODE.split(text)
    parts[::2] = [SPECIAL.sub(r"\\\1", part) for part in parts[::2]]
    return "".join(parts)


def code(text: str) -> str:
    """Return text as code; empty stays empty."""
    return f"`{text}`" if text else ""


def docstring(thing: object) -> str:
    """Return a docstring as Markdown."""
    return plain(getdoc(thing) or "")


def summary(thing: object) -> str:
    """Return the first line of a docstring."""
    return docstring(thing).partition("\n")[0]


def blocks(*parts: str) -> str:
    """Join the parts that are not empty, with an empty line between them."""
    return "\n\n".join(filter(None, parts)) + "\n"
