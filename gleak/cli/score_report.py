"""Command ``gleak scores``: a table of scores, and a picture of the reconstructions."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any, cast

import numpy as np
import pandas as pd
from scipy.special import stdtrit
from tabulate import tabulate

from gleak.artifacts.atomic import atomic
from gleak.cli.common import WIDTH, settings_here
from gleak.core.errors import ArtifactError, DamagedError, SpecError, nearest
from gleak.core.numbers import DASH, REFUSED, format_number
from gleak.figures.canvas.image_grid import draw_grid
from gleak.figures.canvas.style import theme
from gleak.figures.kinds.images import Images
from gleak.figures.kinds.samples import read_strips
from gleak.figures.statistics import CELL, average_batches
from gleak.metrics.score_table import LEVEL_COLUMNS, read_scores
from gleak.metrics.score_table import REFUSED as REFUSED_STATUS
from gleak.studies.axis_labels import BLIND, AxisLabels, read_metric, read_spec
from gleak.studies.cell import LEVELS, TRUTH, Cell
from gleak.studies.figure_spec import Shown

LABEL_WIDTH = 40
CONFIDENCE = 0.95
SCORES = "scores.csv"
PREFERRED = ["mse", "psnr", "ssim", "lpips", "success_content", "success_labels"]
PREFERRED += ["test_accuracy", "audit_alarms"]
BELOW = "*"
NOTE = (
    f"Means over victims with {CONFIDENCE:.0%} intervals (Student t); n: victims. "
    f"{BELOW}: not better than the blind baseline, which ignores the update."
)
Row = Sequence[str]


def add_scores(command: ArgumentParser) -> None:
    paths: dict[str, Any] = {"type": Path, "metavar": "PATH"}
    text = "scores.csv, or folders that contain some"
    command.add_argument("paths", nargs="+", help=text, **paths)
    command.add_argument("--metric", action="append", default=[], metavar="SPEC", dest="metrics")
    text = "save truth and reconstructions as one picture"
    command.add_argument("--image", type=Path, metavar="PNG", help=text)
    for name, default in (("victims", 4), ("samples", 2)):
        text = f"largest number of {name} in the picture; default {default}"
        command.add_argument(f"--{name}", type=int, default=default, metavar="N", help=text)


def run_scores(arguments: Namespace) -> int:
    settings_here()
    tables = find_tables(arguments.paths)
    print(describe_scores(tables, arguments.metrics))
    if arguments.image is not None:
        counts = {"victims": arguments.victims, "samples": arguments.samples}
        print(save_comparison(tables, arguments.image, **counts))
    return 0


def find_tables(paths: Sequence[Path]) -> list[Path]:
    """Return the tables of scores at or below some paths, with those of their blind baselines."""
    tables: list[Path] = []
    for path in paths:
        below = sorted(path.rglob(SCORES)) if path.is_dir() else [path]
        if not below:
            raise ArtifactError(f"{path}: no {SCORES} below it; make one with snakemake first")
        for table in below:
            blind = table.parent.parent / BLIND / SCORES
            tables += [table, blind] if blind.is_file() else [table]
    return list(dict.fromkeys(tables))


def describe_scores(tables: Sequence[Path], metrics: Sequence[str] = ()) -> str:
    """Describe scores: a row for each cell, a column for each metric, at most 100 columns wide.

    Args:
        tables: files in the form of `gleak.metrics.score_table`.
        metrics: canonical specs; the most common ones unless given.
    """
    scores = _read(tables)
    known = [name for name in dict.fromkeys(scores["metric"]) if name]
    for name in metrics:
        if name not in known:
            raise SpecError(f"unknown metric {name!r}; {nearest(name, known)}")
    chosen = list(metrics) or [name for name in PREFERRED if name in known] or known
    common, labels = _labels(scores)
    means = {name: _means(name, scores[scores["metric"] == name]) for name in chosen}
    columns = {name: _column(name, mean, list(labels)) for name, mean in means.items() if mean}
    victims = scores.groupby(list(LEVEL_COLUMNS), sort=False)["victim"].nunique()
    rows = [[label, str(victims[cell])] for cell, label in labels.items()]
    refusals = scores[scores["status"] == REFUSED_STATUS].set_index(list(LEVEL_COLUMNS))["reason"]
    reasons = [
        f"{label}: {REFUSED}: {refusals[cell]}"
        for cell, label in labels.items()
        if cell in refusals
    ]
    return "\n\n".join([common, *_tables(rows, columns), *reasons, fill(NOTE, WIDTH)])


def _read(tables: Sequence[Path]) -> pd.DataFrame:
    """Read tables; one of another form is named, but not taken for a damaged result."""
    try:
        return read_scores(tables)
    except DamagedError as error:
        raise ArtifactError(
            f"{error.path}: {error.fault}; give a scores.csv, or a table of a grid"
        ) from None


def _labels(scores: pd.DataFrame) -> tuple[str, dict[tuple[str, ...], str]]:
    """Return what all cells have in common, and for each cell the levels that vary."""
    cells = scores[list(LEVEL_COLUMNS)].drop_duplicates()
    varying = [level for level in LEVELS if cells[level].nunique() > 1] or ["attack"]
    first = cells.iloc[0]
    common = "/".join(
        f"<{level}>" if level in varying else first[level]
        for level in LEVELS
        if first[level] or level in varying
    )
    rows = [tuple(map(str, row)) for row in cells.itertuples(index=False, name=None)]
    return common, {
        row: " ".join(row[LEVELS.index(level)] or DASH for level in varying) for row in rows
    }


def _means(metric: str, rows: pd.DataFrame) -> Mapping[tuple[str, ...], tuple[float, float]]:
    """Return mean and half width of the interval of each cell, over the means of its batches.

    The width is NaN of a single value.
    """
    batches = average_batches(rows.dropna(subset=["value"]), read_metric(metric))
    means = {}
    for cell, values in batches.groupby(level=CELL):
        half = float("nan")
        if len(values) > 1:
            half = stdtrit(len(values) - 1, (1 + CONFIDENCE) / 2) * values.sem()
        means[tuple(map(str, cast(Iterable[object], cell)))] = float(values.mean()), float(half)
    return means


def _column(
    metric: str,
    means: Mapping[tuple[str, ...], tuple[float, float]],
    cells: Sequence[tuple[str, ...]],
) -> list[str]:
    """Return the text of each cell: the mean, its interval, and the mark of the blind baseline."""
    sign = 1 if read_metric(metric).better == "higher" else -1
    texts = []
    for cell in cells:
        mean, half = means.get(cell, (float("nan"), float("nan")))
        text = format_number(mean)
        if half == 0:
            text += " ± 0"
        elif half > 0:  # two significant digits of the interval
            digits = max(0, 1 - int(np.floor(np.log10(half))))
            text = f"{mean:.{digits}f} ± {half:.{digits}f}"
        blind, _ = means.get((*cell[:-1], BLIND), (float("nan"), 0.0))
        worse = cell[-1] not in (BLIND, TRUTH) and sign * mean <= sign * blind
        texts.append(f"{text} {BELOW}" if worse else text)
    return texts


def _tables(rows: list[list[str]], columns: Mapping[str, list[str]]) -> Iterator[str]:
    """Yield tables of as many columns each as fit the width."""
    names = list(columns)
    while names:
        for count in range(len(names), 0, -1):
            table = _table(rows, {name: columns[name] for name in names[:count]})
            if max(map(len, table.splitlines())) <= WIDTH:
                break
        yield table
        names = names[count:]


def _table(rows: list[list[str]], columns: Mapping[str, list[str]]) -> str:
    cells = [[*row, *texts] for row, *texts in zip(rows, *columns.values(), strict=True)]
    others = 1 + len(columns)
    return tabulate(
        cells,
        ["", "n", *columns],
        tablefmt="simple",
        disable_numparse=True,
        maxcolwidths=[LABEL_WIDTH, *[None] * others],
        colalign=["left", *["right"] * others],
    )


def save_comparison(tables: Sequence[Path], output: Path, *, victims: int, samples: int) -> Path:
    """Save true samples and their reconstructions by all cells as one PNG.

    Args:
        tables: ``scores.csv`` in the folders of attacks, beside their ``reconstruction.h5``.
        output: the PNG.
        victims: largest number of victims of a cell.
        samples: largest number of samples of a victim.
    """
    from gleak.figures.kinds.images import lay_out_results

    shown = [_shown(table) for table in tables if table.parent.name != TRUTH]
    if not shown:
        raise ArtifactError(f"no {SCORES} of an attack among the given paths, so nothing to draw")
    figure = Images(grid="cells", layout="results", victims=victims, samples=samples)
    strips = [strip for each in shown for strip in read_strips(figure, each)]
    cells = [each.cell for each in shown]
    axes = {level: tuple(dict.fromkeys(cell.specs[level] for cell in cells)) for level in LEVELS}
    with theme(), atomic(output, private=True) as temporary:
        picture = draw_grid(lay_out_results(strips, AxisLabels(axes)))
        picture.savefig(temporary, format="png", dpi=200, bbox_inches="tight")
    return output


def _shown(table: Path) -> Shown:
    """Return the cell of a table, with its files."""
    row = _read([table]).iloc[0]
    if not row["attack"]:
        raise ArtifactError(f"{table}: scores of {row['dataset']}/{row['model']} without an attack")
    cell = Cell({level: read_spec(level, row[level]) for level in LEVELS})
    return Shown(
        cell,
        table.with_name("reconstruction.h5"),
        table.parent.parent / "private.h5",
        str(row["reason"]),
    )
