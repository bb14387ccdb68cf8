"""Style of all figures, and saving them reproducibly to the byte."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from textwrap import fill
from typing import Any

from gleak.artifacts.atomic import atomic
from gleak.core.lazy import matplotlib as mpl
from gleak.core.lazy import pandas as pd
from gleak.core.lazy import seaborn as sns

PANEL = (3.0, 2.3)  # inches
PAGE = 7.2  # inches: widest rows of images
DOTS_PER_INCH = 200
PALETTE, PALETTE_SIZE = "colorblind", 10
COLOURS_OF = {
    "invertgrad gm": 0,
    "dlg": 1,
    "cpl": 2,
    "cpa mkor rog agic agic_epochs": 3,
    "rogs cpa_edges fishing melis": 4,
    "idlg dlg_adam cpa_fi_gm": 5,
    "fi": 6,
    "cpa_noisy sparse_fi": 7,
    "cpa_fi aono spear": 9,
}
METHODS = {name: number for names, number in COLOURS_OF.items() for name in names.split()}
"""Attack -> its colour in the palette, the same in all figures; attacks of different papers share
colours, those of one figure do not."""
NEUTRAL = "0.45"
SMALL = 6.5  # points of the conditions below a figure
SMALL_CHARACTER = 0.046  # inches of a character of that size
NARROWEST = 60  # characters of a line of the conditions, at least
BELOW = 0.06  # inches between a figure and its conditions
VOLATILE: dict[str, dict[str, None]] = {
    "svg": {"Date": None, "Creator": None},
    "png": {"Software": None},
}
SETTINGS: dict[Any, Any] = {
    "font.size": 8,
    "axes.titlesize": 9,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7.5,
    "legend.title_fontsize": 8,
    "lines.linewidth": 1.4,
    "lines.markersize": 4.5,
    "svg.hashsalt": "gleak",
    "svg.fonttype": "path",
    "font.family": "DejaVu Sans",
}


@contextmanager
def theme() -> Iterator[None]:
    """Apply the style of all figures within a context."""
    with mpl.rc_context(), sns.axes_style("ticks"), sns.plotting_context("paper"):
        mpl.rcParams.update(SETTINGS)
        sns.set_palette(PALETTE)
        yield


def colours(count: int) -> list[tuple[float, float, float]]:
    """Return a colour-blind safe palette."""
    return list(sns.color_palette(PALETTE, count))


def colours_of(methods: Sequence[str]) -> list[tuple[float, float, float]]:
    """Return one colour per attack, in order: its own; the first unused one if that is taken."""
    palette, taken = colours(PALETTE_SIZE), list[int]()
    reserved = {METHODS.get(name) for name in methods}
    for name in methods:
        own = METHODS.get(name)
        free = [i for i in range(PALETTE_SIZE) if i not in reserved and i not in taken]
        taken.append(own if own is not None and own not in taken else (free or taken)[0])
    return [palette[number] for number in taken]


def new_figure(width: float, height: float) -> mpl.figure.Figure:
    """Return an empty figure of a size in inches, without a GUI backend."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height))


def save(
    figure: mpl.figure.Figure, stem: Path, conditions: Mapping[str, str] | None = None
) -> None:
    """Write ``stem.svg`` and ``stem.png`` without dates or versions in their metadata.

    The conditions, by heading, are printed below the figure, on lines of its width.
    """
    if conditions:
        width, height = figure.get_size_inches()
        text = " · ".join(f"{heading}: {text}" for heading, text in conditions.items())
        lines = fill(text, max(NARROWEST, int(width / SMALL_CHARACTER)))
        figure.text(0, -BELOW / height, lines, va="top", size=SMALL, color="0.35")
    wide: dict[str, Any] = {"bbox_inches": "tight", "pad_inches": 0.05, "dpi": DOTS_PER_INCH}
    for kind, metadata in VOLATILE.items():
        with atomic(suffixed(stem, f".{kind}"), private=True) as temporary:
            figure.savefig(temporary, format=kind, metadata=metadata, **wide)


def save_numbers(table: pd.DataFrame, stem: Path) -> None:
    """Write the numbers of a figure to ``stem.csv``; equal tables give equal bytes."""
    with atomic(suffixed(stem, ".csv")) as temporary:
        table.to_csv(temporary, index=False, float_format="%.9g", lineterminator="\n")


def suffixed(stem: Path, suffix: str) -> Path:
    """Append a suffix to the file name, which may itself contain dots."""
    return stem.with_name(stem.name + suffix)
