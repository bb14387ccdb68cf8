"""Tables of texts as a page of HTML and as LaTeX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Literal

from gleak.artifacts.atomic import atomic
from gleak.core.lazy import pandas as pd
from gleak.figures.canvas.style import suffixed

OURS, PAPER = "ours", "paper"
"""Headings of columns with our numbers and with those of the paper, which are grey."""
STYLE = """\
body { margin: 2em auto; padding: 0 1em; max-width: max-content; color: #1a1a1a;
       font: 15px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.25em; margin: 0; }
p.source { margin: 0.2em 0 1em; color: #666; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
main table { border-top: 2px solid; border-bottom: 2px solid; margin: 1em 0; }
main th, main td { padding: 0.25em 0.8em; text-align: right; white-space: nowrap; }
main th { font-weight: 600; }
main thead tr:last-child th { border-bottom: 1px solid; }
main thead th[colspan] { text-align: center; border-bottom: 1px solid #bbb; }
main th.name { text-align: left; }
main tbody th { font-weight: 400; text-align: left; vertical-align: top; }
main tbody tr:has(th[rowspan]) > * { border-top: 1px solid #ddd; }
main tbody tr:hover td { background: #f4f6f8; }
main { overflow-x: auto; }
.words { font-size: 0.87em; }
.words td, .words th { text-align: left; vertical-align: top; white-space: normal; }
.words td { max-width: 20em; overflow-wrap: break-word; }
.paper { color: #777; }
ul { list-style: none; margin: 1em 0; padding: 0; max-width: 60em; }
ul, .conditions { color: #555; font-size: 0.87em; }
.conditions { max-width: 60em; }
.conditions th { text-align: left; vertical-align: top; font-weight: 600;
                 padding: 0.1em 1.5em 0.1em 0; white-space: nowrap; }
"""
IN_LATEX = str.maketrans(
    {
        "–": "--",
        "±": r"$\pm$",
        "×": r"$\times$",
        "†": r"$\dagger$",
        "‡": r"$\ddagger$",
        "▾": r"$\blacktriangledown$",
    }
)


def write_table(
    cells: pd.DataFrame,
    stem: Path,
    notes: Sequence[str],
    *,
    heading: tuple[str, str] = ("", ""),
    conditions: Mapping[str, str] | None = None,
    bold: pd.DataFrame | None = None,
    align: Literal["right", "left"] = "right",
) -> None:
    """Write a table as ``.html``, a page of its own, and as ``.tex``, a tabular for a paper.

    Args:
        cells: texts; a level of the index or columns that repeats is written once.
        stem: the files, without their suffixes.
        notes: explanations of the signs in the table.
        heading: title of the page, and what it reproduces; "" for none.
        conditions: heading -> text, below the table.
        bold: Boolean, of the shape of the cells; None: none is bold.
        align: alignment of texts: right for numbers, left for words.
    """
    told = conditions or {}
    items = "\n".join(f"<li>{escape(note)}</li>" for note in notes)
    rows = "\n".join(
        f"<tr><th>{escape(key)}</th><td>{escape(text)}</td></tr>" for key, text in told.items()
    )
    bold = cells.map(lambda _: False) if bold is None else bold
    title, source = map(escape, heading)
    kind = "words" if align == "left" else "numbers"
    page = [
        f'<!DOCTYPE html>\n<html lang="en">\n<meta charset="utf-8">\n<title>{title}</title>',
        f"<style>\n{STYLE}</style>",
        f"<h1>{title}</h1>" if title else "",
        f'<p class="source">{source}</p>' if source else "",
        f'<main class="{kind}">\n{_html(cells, bold)}\n</main>',
        f"<ul>\n{items}\n</ul>" if items else "",
        f'<table class="conditions">\n{rows}\n</table>' if rows else "",
        "</html>\n",
    ]
    comments = [r"% \usepackage{booktabs,multirow,amssymb}", *(f"% {note}" for note in notes)]
    comments += [f"% {key}: {text}" for key, text in told.items()]
    texts = {
        ".html": "\n".join(filter(None, page)),
        ".tex": "\n".join([*comments, _latex(cells, bold, align[0])]),
    }
    for suffix, text in texts.items():
        with atomic(suffixed(stem, suffix)) as temporary:
            temporary.write_text(text, encoding="utf-8")


def table_in_page(page: str) -> str:
    """Return the table of a page, and what is below it, as HTML for another page."""
    body = page.partition("<main")[2].partition("</html>")[0].strip()
    return f"<div {body}".replace("</main>", "</div>")


def _html(cells: pd.DataFrame, bold: pd.DataFrame) -> str:
    marked = cells.map(escape)
    marked = marked.where(~bold, "<b>" + marked + "</b>")
    in_paper = marked.columns.get_level_values(-1) == PAPER
    marked.loc[:, in_paper] = '<span class="paper">' + marked.loc[:, in_paper] + "</span>"
    styler = _plain(marked).style
    styler = styler.format_index(escape="html", axis=0).format_index(escape="html", axis=1)
    html = styler.to_html(exclude_styles=True, sparse_index=True, sparse_columns=True).strip()
    head, _, body = html.partition("</thead>")
    above, _, last = head.rpartition("<tr>")
    for name in cells.index.names:
        last = last.replace("<th >&nbsp;", f'<th class="name">{escape(str(name))}', 1)
    return f"{above}<tr>{last}</thead>{body}"


def _plain(cells: pd.DataFrame) -> pd.DataFrame:
    """Return a table without names of its index, to which pandas would give a row of their own."""
    for axis in (0, 1):
        index = cells.axes[axis]
        flat = index.get_level_values(0) if index.nlevels == 1 else index
        cells = cells.set_axis(flat.set_names([None] * index.nlevels), axis=axis)
    return cells


def _latex(cells: pd.DataFrame, bold: pd.DataFrame, side: str) -> str:
    """Format as a booktabs tabular with escaped texts."""
    styler = _plain(cells).style.format(escape="latex")
    for axis in (0, 1):
        styler = styler.format_index(escape="latex", axis=axis)
    if bold.to_numpy().any():
        weights = _plain(bold).map(lambda is_bold: "font-weight: bold" if is_bold else "")
        styler = styler.apply(lambda _: weights, axis=None)
    tabular = styler.to_latex(
        hrules=True,
        column_format="l" * cells.index.nlevels + side * cells.shape[1],
        multicol_align="c",
        multirow_align="t",
        convert_css=True,
    )
    return tabular.translate(IN_LATEX)
