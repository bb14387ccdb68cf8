"""The forms in which every table is written: Markdown, LaTeX and a picture of the same cells."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from pandas.io.formats.style import Styler

from gleak.artifacts.atomic import atomic
from gleak.figures.style import suffixed
from gleak.figures.table_picture import Side, draw_picture


def write_forms(cells: pd.DataFrame, note: str, stem: Path, align: Side = "right") -> None:
    """Write ``.md``, ``.tex``, ``.svg`` and ``.png``.

    Args:
        cells: texts; index and columns are `pandas.MultiIndex`.
        note: one line below the table.
        stem: the file, without its suffix.
        align: to which side texts stand in the picture: numbers right, words left.
    """
    texts = {".md": f"{_markdown(cells)}\n\n{note}\n", ".tex": _latex(cells, note)}
    for suffix, text in texts.items():
        with atomic(suffixed(stem, suffix)) as temporary:
            temporary.write_text(text, encoding="utf-8")
    draw_picture(cells, note, stem, align)


def _markdown(cells: pd.DataFrame) -> str:
    """One header line, as Markdown has no other: a column's levels are named together."""
    flat = cells.set_axis([", ".join(column) for column in cells.columns], axis=1)
    return str(flat.reset_index().to_markdown(index=False, disable_numparse=True))


def _latex(cells: pd.DataFrame, note: str) -> str:
    """A booktabs tabular to be put into a table; every text is escaped."""
    unnamed: Any = [None] * cells.index.nlevels
    cells = cells.rename_axis(index=unnamed)
    if cells.columns.nlevels == 1:
        cells = cells.set_axis(cells.columns.get_level_values(0), axis=1)
    styler = Styler(cells).format(escape="latex")
    for axis in (0, 1):
        styler = styler.format_index(escape="latex", axis=axis)
    tabular = styler.to_latex(hrules=True, multicol_align="c", multirow_align="t")
    return f"% {note}\n{tabular}"
