"""Tables of texts as Markdown, LaTeX and a picture."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from textwrap import fill
from typing import Any, Literal

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pandas.io.formats.style import Styler

from gleak.artifacts.atomic import atomic
from gleak.core.markup import table_in_markdown, to_markdown
from gleak.figures.canvas.style import (
    BROAD_PAGE,
    PAGE,
    new_figure,
    save,
    suffixed,
    theme,
)

CHARACTER = 0.061  # inches of a character of the table's font
GAP = 0.2  # inches between columns
LINE, FURTHER = 0.2, 0.135  # inches of the first line of a row, and of each further line
BETWEEN = 0.25  # inches between parts of a table that are below each other
SIZE = 8
LONGEST = 26  # characters of a line of words
NOTE = 125  # characters of a line below a table, at least
THICK, THIN, HAIR = 1.1, 0.7, 0.3
Side = Literal["left", "right"]


def write_forms(cells: pd.DataFrame, note: str, stem: Path, align: Side = "right") -> None:
    """Write ``.md``, ``.tex``, ``.svg`` and ``.png``.

    A table that is wider than a page is divided in LaTeX and the picture: parts with some of the
    columns each are below each other.

    Args:
        cells: texts; index and columns are `pandas.MultiIndex`.
        note: lines below the table.
        stem: the file, without its suffix.
        align: alignment of texts in the picture: right for numbers, left for words.
    """
    texts = {".md": f"{_markdown(cells)}\n\n{note}\n", ".tex": _latex(divide(cells, PAGE), note)}
    for suffix, text in texts.items():
        with atomic(suffixed(stem, suffix)) as temporary:
            temporary.write_text(text, encoding="utf-8")
    draw_picture(cells, note, stem, align)


def _markdown(cells: pd.DataFrame) -> str:
    """Format as Markdown; the levels of a column are joined into a single header line."""
    flat = cells.set_axis([", ".join(filter(None, column)) for column in cells.columns], axis=1)
    shown = flat.reset_index().astype(str).map(to_markdown).rename(columns=to_markdown)
    return table_in_markdown(shown)


def _latex(parts: Sequence[pd.DataFrame], note: str) -> str:
    """Format as booktabs tabulars with escaped texts, one for each part."""
    comments = "".join(f"% {line}\n" for line in note.splitlines())
    return comments + "\n".join(map(_tabular, parts))


def _tabular(cells: pd.DataFrame) -> str:
    unnamed: Any = [None] * cells.index.nlevels
    cells = cells.rename_axis(index=unnamed)
    if cells.columns.nlevels == 1:
        cells = cells.set_axis(cells.columns.get_level_values(0), axis=1)
    styler = Styler(cells).format(escape="latex")
    for axis in (0, 1):
        styler = styler.format_index(escape="latex", axis=axis)
    return str(styler.to_latex(hrules=True, multicol_align="c", multirow_align="t"))


def divide(cells: pd.DataFrame, widest: float) -> list[pd.DataFrame]:
    """Divide a table into parts that are no wider than a page, each with all of its rows.

    Columns with a common heading stay together if they fit.
    """
    keys: list[Any] = list(cells.columns)
    groups = [(first, last) for first, last, _ in _spans([key[:1] for key in keys])]
    columns = [[*range(first, last + 1)] for first, last in groups]
    if max(_width(cells.iloc[:, group]) for group in columns) > widest:
        columns = [[number] for number in range(len(keys))]
    parts: list[list[int]] = [[]]
    for group in columns:
        if parts[-1] and _width(cells.iloc[:, [*parts[-1], *group]]) > widest:
            parts.append([])
        parts[-1] += group
    return [cells.iloc[:, part] for part in parts]


def _width(cells: pd.DataFrame) -> float:
    return _edges(cells)[-1]


def draw_picture(cells: pd.DataFrame, note: str, stem: Path, align: Side = "right") -> None:
    """Draw a table and write it as ``.svg`` and ``.png``.

    Args:
        cells: texts; a level of the index or columns that repeats is written once.
        note: lines below the table, each broken into several if it is long.
        stem: the file, without its suffix.
        align: alignment of texts in their columns.
    """
    with theme():
        save(_draw(_wrap(cells) if align == "left" else cells, note, align), stem)


def _wrap(cells: pd.DataFrame) -> pd.DataFrame:
    """Break words and headings into lines of at most `LONGEST` characters."""

    def broken(text: str) -> str:
        return fill(text, LONGEST, break_long_words=False)

    columns = [tuple(map(broken, column)) for column in cells.columns]
    return cells.map(broken).set_axis(pd.MultiIndex.from_tuples(columns), axis=1)


def _draw(cells: pd.DataFrame, note: str, align: Side) -> Figure:
    widest = PAGE if align == "right" else BROAD_PAGE
    parts = [_Part(part, align) for part in divide(cells, widest)]
    width = max(part.edges[-1] for part in parts)
    height = sum(part.height + BETWEEN for part in parts)
    figure = new_figure(width, height)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(height, 0))
    axes.set_axis_off()
    top = 0.0
    for part in parts:
        part.draw(axes, top)
        top += part.height + BETWEEN
    longest = max(NOTE, int(width / CHARACTER))
    text = "\n".join(fill(line, longest) for line in note.splitlines())
    style: dict[str, Any] = {"color": "0.35", "fontsize": SIZE - 1, "va": "top"}
    axes.text(0.05, top - BETWEEN + LINE * 0.4, text, **style)
    return figure


class _Part:
    """A table on axes in inches, y downwards."""

    def __init__(self, cells: pd.DataFrame, align: Side) -> None:
        self.cells = cells
        self.align = align
        self.labels = cells.index.nlevels
        self.edges = _edges(cells)
        keys: list[Any] = list(cells.columns)
        levels = zip(*keys, strict=True)
        self.heads = [max(map(_height, texts)) for texts in levels]
        rows = [[key[-1], *line] for key, line in zip(cells.index, cells.to_numpy(), strict=True)]
        self.rows = [max(map(_height, texts)) for texts in rows]
        self.height = LINE * 0.5 + sum(self.heads) + sum(self.rows)

    def draw(self, axes: Axes, top: float) -> None:
        """Draw rules, headers, labels and cells."""
        self.axes, self.top = axes, top + LINE * 0.4
        self._draw_heads()
        self._draw_labels()
        for i, line in enumerate(self.cells.to_numpy()):
            for j, text in enumerate(line):
                self._write(self._edge(j), self._y(i), text, ha=self.align)
        self._rule(-1, self._y(len(self.cells)), THICK)

    def _draw_heads(self) -> None:
        columns: list[Any] = list(self.cells.columns)
        self._rule(-1, self.top, THICK)
        for level in range(len(self.heads)):
            y = self.top + sum(self.heads[:level])
            for first, last, text in _spans([column[: level + 1] for column in columns]):
                if level == len(self.heads) - 1:
                    self._write(self._edge(last), y, text[-1], ha=self.align, color="0.35")
                    continue
                left, right = self._left(first) + GAP, self._right(last)
                self._write((left + right) / 2, y, text[-1], ha="center", weight="bold")
                below = y + self.heads[level]
                self.axes.plot([left, right], [below] * 2, color="0.3", lw=HAIR)
        lowest = self.top + sum(self.heads[:-1])
        for level, title in enumerate(self.cells.index.names):
            self._write(self._label_left(level), lowest, str(title), color="0.35")
        self._rule(-1, self._y(0), THIN)

    def _draw_labels(self) -> None:
        lines: list[Any] = list(self.cells.index)
        for level in range(self.labels):
            for first, _, text in _spans([line[: level + 1] for line in lines]):
                self._write(self._label_left(level), self._y(first), text[-1])
                if level < self.labels - 1 and first:
                    self._rule(level - 1, self._y(first), HAIR)

    def _y(self, line: int) -> float:
        """Return the y at which a row begins."""
        return self.top + sum(self.heads) + sum(self.rows[:line])

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
        """Write the lines of a text from a y on downwards."""
        self.axes.text(x, y + LINE * 0.2, text, **{"va": "top", "fontsize": SIZE, **style})


def _height(text: str) -> float:
    """Return the height of the lines of a text in inches."""
    return LINE + FURTHER * str(text).count("\n")


def _letters(text: str) -> int:
    """Return the number of characters of the longest line."""
    return max(map(len, str(text).splitlines()), default=0)


def _edges(cells: pd.DataFrame) -> list[float]:
    """Compute the right edge of each column, index first; wide enough for spanning headers."""
    index = cells.index
    columns: list[Any] = list(cells.columns)
    widths = [
        max(_letters(text) for text in (*index.get_level_values(level), index.names[level]))
        for level in range(index.nlevels)
    ]
    body = [
        max(_letters(columns[j][-1]), *map(_letters, cells.iloc[:, j])) for j in range(len(columns))
    ]
    inches = [CHARACTER * width + GAP for width in (*widths, *body)]
    for level in range(len(columns[0]) - 1):
        for first, last, text in _spans([column[: level + 1] for column in columns]):
            at = slice(index.nlevels + first, index.nlevels + last + 1)
            wanted = CHARACTER * _letters(text[-1]) + GAP
            share = max(0.0, wanted - sum(inches[at])) / (last - first + 1)
            inches[at] = [width + share for width in inches[at]]
    return [sum(inches[: i + 1]) for i in range(len(inches))]


def _spans(keys: list[Any]) -> list[tuple[int, int, Any]]:
    """Return the runs of equal keys: first position, last position, key."""
    runs = [
        (key, [i for i, _ in run]) for key, run in groupby(enumerate(keys), lambda pair: pair[1])
    ]
    return [(places[0], places[-1], key) for key, places in runs]
