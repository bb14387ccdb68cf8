"""Tables of texts as Markdown, LaTeX and a picture."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from textwrap import fill
from typing import Any, Literal

import pandas as pd
from matplotlib.figure import Figure
from pandas.io.formats.style import Styler

from gleak.artifacts.atomic import atomic
from gleak.figures.canvas.style import new_figure, save, suffixed, theme


def write_forms(cells: pd.DataFrame, note: str, stem: Path, align: Side = "right") -> None:
    """Write ``.md``, ``.tex``, ``.svg`` and ``.png``.

    Args:
        cells: texts; index and columns are `pandas.MultiIndex`.
        note: one line below the table.
        stem: the file, without its suffix.
        align: alignment of texts in the picture: right for numbers, left for words.
    """
    texts = {".md": f"{_markdown(cells)}\n\n{note}\n", ".tex": _latex(cells, note)}
    for suffix, text in texts.items():
        with atomic(suffixed(stem, suffix)) as temporary:
            temporary.write_text(text, encoding="utf-8")
    draw_picture(cells, note, stem, align)


def _markdown(cells: pd.DataFrame) -> str:
    """Format as Markdown; the levels of a column are joined into a single header line."""
    flat = cells.set_axis([", ".join(column) for column in cells.columns], axis=1)
    return str(flat.reset_index().to_markdown(index=False, disable_numparse=True))


def _latex(cells: pd.DataFrame, note: str) -> str:
    """Format as a booktabs tabular with escaped texts."""
    unnamed: Any = [None] * cells.index.nlevels
    cells = cells.rename_axis(index=unnamed)
    if cells.columns.nlevels == 1:
        cells = cells.set_axis(cells.columns.get_level_values(0), axis=1)
    styler = Styler(cells).format(escape="latex")
    for axis in (0, 1):
        styler = styler.format_index(escape="latex", axis=axis)
    tabular = styler.to_latex(hrules=True, multicol_align="c", multirow_align="t")
    return f"% {note}\n{tabular}"


CHARACTER = 0.066  # inches of a character of the table's font
GAP = 0.2  # inches between columns
LINE = 0.2  # inches from line to line
SIZE = 8
NOTE = 120  # characters of a line below a table, at least
THICK, THIN, HAIR = 1.1, 0.7, 0.3
Side = Literal["left", "right"]


def draw_picture(cells: pd.DataFrame, note: str, stem: Path, align: Side = "right") -> None:
    """Draw a table and write it as ``.svg`` and ``.png``.

    Args:
        cells: texts; a level of the index or columns that repeats is written once.
        note: below the table, on several lines if it is long.
        stem: the file, without its suffix.
        align: alignment of texts in their columns.
    """
    with theme():
        picture = _Picture(cells, align)
        picture.draw(note)
        save(picture.figure, stem)


class _Picture:
    """A table on axes in inches, y downwards."""

    def __init__(self, cells: pd.DataFrame, align: Side) -> None:
        self.cells = cells
        self.align = align
        self.labels = cells.index.nlevels
        self.heads = cells.columns.nlevels
        self.edges = self._edges()
        self.height = LINE * (self.heads + len(cells) + 1.5)
        self.figure: Figure = new_figure(self.edges[-1], self.height)
        self.axes = self.figure.add_axes((0, 0, 1, 1))
        self.axes.set(xlim=(0, self.edges[-1]), ylim=(self.height, 0))
        self.axes.set_axis_off()

    def draw(self, note: str) -> None:
        """Draw rules, headers, labels, cells and the note."""
        self._draw_heads()
        self._draw_labels()
        for i, line in enumerate(self.cells.to_numpy()):
            for j, text in enumerate(line):
                self._write(self._edge(j), self._y(i), text, ha=self.align)
        bottom = self._y(len(self.cells)) - LINE / 2
        self._rule(-1, bottom, THICK)
        style = {"color": "0.35", "fontsize": SIZE - 1, "va": "top"}
        text = fill(note, max(NOTE, int(self.edges[-1] / CHARACTER)))
        self._write(0.05, bottom + LINE * 0.4, text, **style)

    def _edges(self) -> list[float]:
        """Compute the right edge of each column, index first; wide enough for spanning headers."""
        index, columns = self.cells.index, self.cells.columns
        titles = index.names
        widths = [
            max(len(str(text)) for text in (*index.get_level_values(level), str(titles[level])))
            for level in range(index.nlevels)
        ]
        body = [
            max(len(columns[j][-1]), *map(len, self.cells.iloc[:, j])) for j in range(len(columns))
        ]
        inches = [CHARACTER * width + GAP for width in (*widths, *body)]
        for level in range(columns.nlevels - 1):
            for first, last, text in _spans([column[: level + 1] for column in columns]):
                at = slice(index.nlevels + first, index.nlevels + last + 1)
                wanted = CHARACTER * len(text[-1]) + GAP
                share = max(0.0, wanted - sum(inches[at])) / (last - first + 1)
                inches[at] = [width + share for width in inches[at]]
        return [sum(inches[: i + 1]) for i in range(len(inches))]

    def _draw_heads(self) -> None:
        columns: list[Any] = list(self.cells.columns)
        top = LINE * 0.4
        self._rule(-1, top, THICK)
        for level in range(self.heads):
            y = top + LINE * (level + 0.55)
            for first, last, text in _spans([column[: level + 1] for column in columns]):
                if level == self.heads - 1:
                    self._write(self._edge(last), y, text[-1], ha=self.align, color="0.35")
                    continue
                left, right = self._left(first) + GAP, self._right(last)
                self._write((left + right) / 2, y, text[-1], ha="center", weight="bold")
                self.axes.plot([left, right], [y + LINE / 2] * 2, color="0.3", lw=HAIR)
        for level, title in enumerate(self.cells.index.names):
            self._write(
                self._label_left(level), top + LINE * (self.heads - 0.45), str(title), color="0.35"
            )
        self._rule(-1, self._y(0) - LINE / 2, THIN)

    def _draw_labels(self) -> None:
        lines: list[Any] = list(self.cells.index)
        for level in range(self.labels):
            for first, _, text in _spans([line[: level + 1] for line in lines]):
                self._write(self._label_left(level), self._y(first), text[-1])
                if level < self.labels - 1 and first:
                    self._rule(level - 1, self._y(first) - LINE / 2, HAIR)

    def _y(self, line: int) -> float:
        return LINE * (0.4 + self.heads + 0.55 + line)

    def _label_left(self, level: int) -> float:
        return 0.05 + (self.edges[level - 1] if level else 0.0)

    def _edge(self, column: int) -> float:
        """Return the x at which the texts of a column are aligned."""
        return self._right(column) if self.align == "right" else self._left(column) + GAP / 2

    def _left(self, column: int) -> float:
        return self.edges[self.labels + column - 1]

    def _right(self, column: int) -> float:
        return self.edges[self.labels + column] - 0.03

    def _rule(self, after: int, y: float, width: float) -> None:
        left = 0.0 if after < 0 else self.edges[after]
        self.axes.plot([left, self.edges[-1]], [y, y], color="black", lw=width)

    def _write(self, x: float, y: float, text: str, **style: Any) -> None:
        self.axes.text(x, y, text, **{"va": "center", "fontsize": SIZE, **style})


def _spans(keys: list[Any]) -> list[tuple[int, int, Any]]:
    """Return the runs of equal keys: first position, last position, key."""
    runs = [
        (key, [i for i, _ in run]) for key, run in groupby(enumerate(keys), lambda pair: pair[1])
    ]
    return [(places[0], places[-1], key) for key, places in runs]
