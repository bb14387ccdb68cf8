"""Table of scores: columns, reading and writing.

Long form: one row per victim, sample and metric, or per victim and metric for metrics with one
value per batch, whose ``sample`` is empty. A trained model or broadcast parameters have one row per
metric; the victim is 0, and the levels after the training or the crafting are empty. Rows are never
dropped: ``status`` records missing values. A refused cell has one row without metric and value, and
with a ``reason``.
"""

from __future__ import annotations

import csv
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from gleak.artifacts.atomic import atomic
from gleak.core.errors import ArtifactError, DamagedError
from gleak.core.lazy import pandas as pd

logger = logging.getLogger(__name__)

LEVEL_COLUMNS = ("dataset", "model", "training", "crafting", "client", "defense", "attack")
COLUMNS = (*LEVEL_COLUMNS, "victim", "sample", "metric", "value", "status", "grants", "reason")
TYPES: dict[str, Any] = {
    **dict.fromkeys(COLUMNS, "str"),
    "victim": "int64",
    "sample": "Int64",
    "value": "float64",
}

OK = "ok"
NOT_CONVERGED = "not_converged"
UNMATCHED = "unmatched"
UNAVAILABLE = "unavailable"
REFUSED = "refused"
STATUSES = frozenset({OK, NOT_CONVERGED, UNMATCHED, UNAVAILABLE, REFUSED})


def empty_scores() -> pd.DataFrame:
    """Return a table of scores without rows."""
    return pd.DataFrame({column: [] for column in COLUMNS}).astype(TYPES)


def refused_scores(levels: Mapping[str, str], reason: str) -> pd.DataFrame:
    """Return the table of a refused cell; keys that are not levels are ignored."""
    given = {level: levels[level] for level in LEVEL_COLUMNS if level in levels}
    row: dict[str, Any] = {**dict.fromkeys(COLUMNS, ""), **given, "reason": reason}
    row |= {"status": REFUSED, "victim": 0, "sample": pd.NA, "value": float("nan")}
    return pd.DataFrame([row], columns=COLUMNS).astype(TYPES)


def save_refusal(levels: Mapping[str, str], reason: str, output: Path) -> pd.DataFrame:
    """Write the table of a cell that was refused in an earlier job, and return it."""
    logger.warning("refused: %s", reason)
    table = refused_scores(levels, reason)
    save_scores(table, output)
    return table


def refusal_in_scores(path: Path | str) -> str | None:
    """Return the reason in the table of a refused cell; None for any other file."""
    try:
        with Path(path).open(newline="", encoding="utf-8") as file:
            row = next(csv.DictReader(file), {})
    except (OSError, ValueError, csv.Error):
        return None
    return row["reason"] if row.get("status") == REFUSED else None


def save_scores(table: pd.DataFrame, output: Path) -> None:
    """Write a table with nine digits of each value; equal tables give equal bytes."""
    with atomic(output) as temporary:
        table.to_csv(temporary, index=False, float_format="%.9g", lineterminator="\n")


def read_scores(paths: Iterable[Path | str]) -> pd.DataFrame:
    """Read tables of scores and concatenate them; NaN and NA where a file is empty.

    Raises:
        ArtifactError: a file is missing or not a table of scores; names it.
    """
    return pd.concat([empty_scores(), *map(_read_table, paths)], ignore_index=True)


def _read_table(path: Path | str) -> pd.DataFrame:
    if not Path(path).is_file():
        raise ArtifactError(f"{path}: no such file")
    try:
        table = pd.read_csv(
            path, dtype=TYPES, keep_default_na=False, na_values={"sample": [""], "value": [""]}
        )
    except ValueError as error:
        raise DamagedError(path, f"not a table of scores ({error})") from None
    if tuple(table.columns) != COLUMNS:
        raise DamagedError(path, f"has columns {list(table.columns)}, expected {list(COLUMNS)}")
    unknown = sorted(set(table["status"]) - STATUSES)
    if unknown:
        raise DamagedError(path, f"status {unknown} is none of {sorted(STATUSES)}")
    return table
