"""The table of scores: its columns, reading and writing it.

Long form: one row per victim, sample and metric; per victim and metric where the metric is one
number for a whole batch, ``sample`` then being empty. Of a trained model and of broadcast
parameters there is one row per metric; its victim is 0, and the levels after the training or the
crafting are empty. Rows are never dropped: ``status`` says what became of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gleak.artifacts.atomic import atomic
from gleak.errors import ArtifactError, DamagedError

if TYPE_CHECKING:
    import pandas as pd

LEVEL_COLUMNS = ("dataset", "model", "training", "crafting", "client", "defense", "attack")
COLUMNS = (*LEVEL_COLUMNS, "victim", "sample", "metric", "value", "status", "grants")
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
STATUSES = frozenset({OK, NOT_CONVERGED, UNMATCHED, UNAVAILABLE})


def empty_scores() -> pd.DataFrame:
    """A table of scores without rows."""
    import pandas as pd

    return pd.DataFrame({column: [] for column in COLUMNS}).astype(TYPES)


def save_scores(table: pd.DataFrame, output: Path) -> None:
    """Write a table, with nine digits of each value; equal tables give equal bytes."""
    with atomic(output) as temporary:
        table.to_csv(temporary, index=False, float_format="%.9g", lineterminator="\n")


def read_scores(paths: Iterable[Path | str]) -> pd.DataFrame:
    """Read tables of scores and put them one below the other.

    Returns:
        Columns `COLUMNS`; ``value`` is NaN and ``sample`` NA where the file has nothing.

    Raises:
        ArtifactError: a file is missing or is not such a table; names it.
    """
    import pandas as pd

    return pd.concat([empty_scores(), *map(_read_table, paths)], ignore_index=True)


def _read_table(path: Path | str) -> pd.DataFrame:
    import pandas as pd

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
