"""Style of all figures, and saving them reproducibly to the byte."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import seaborn as sns
from matplotlib.figure import Figure

from gleak.artifacts.atomic import atomic

if TYPE_CHECKING:
    import pandas as pd

PANEL = (3.0, 2.3)  # inches
DOTS_PER_INCH = 200
PALETTE = "colorblind"
NEUTRAL = "0.45"
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


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of a size in inches, without a GUI backend."""
    return Figure(figsize=(width, height))


def save(figure: Figure, stem: Path) -> None:
    """Write ``stem.svg`` and ``stem.png`` without dates or versions in their metadata."""
    wide: dict[str, Any] = {"bbox_inches": "tight", "pad_inches": 0.05, "dpi": DOTS_PER_INCH}
    for kind, metadata in VOLATILE.items():
        with atomic(suffixed(stem, f".{kind}")) as temporary:
            figure.savefig(temporary, format=kind, metadata=metadata, **wide)


def save_numbers(table: pd.DataFrame, stem: Path) -> None:
    """Write the numbers of a figure to ``stem.csv``; equal tables give equal bytes."""
    with atomic(suffixed(stem, ".csv")) as temporary:
        table.to_csv(temporary, index=False, float_format="%.9g", lineterminator="\n")


def suffixed(stem: Path, suffix: str) -> Path:
    """Append a suffix to the file name, which may itself contain dots."""
    return stem.with_name(stem.name + suffix)
