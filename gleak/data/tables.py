"""From tables to features: continuous columns scaled to [0, 1], categorical ones one-hot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from pandas import DataFrame, Series


@dataclass(frozen=True)
class Features:
    """Both splits of a table as numbers.

    Args:
        train: Shape (M, F), float32 in [0, 1].
        test: like ``train``, with its own M.
        names: of each column, ``age`` or ``sex=Male``.
        groups: of each column, the number of the table's column it came from; Shape (F).
    """

    train: np.ndarray
    test: np.ndarray
    names: list[str]
    groups: np.ndarray

    def facts(self) -> dict[str, Any]:
        """What a `Dataset` of a table states beside its samples."""
        names = np.array(self.names, dtype=object)
        return {"modality": "tabular", "feature_names": names, "feature_groups": self.groups}


def encode_table(train: DataFrame, test: DataFrame) -> Features:
    """Scale numeric columns by the train split and write the others as one-hot groups.

    A test value outside the train range is clipped; categories are those of both splits, sorted.
    """
    blocks = [_encode_column(train[name], test[name]) for name in train.columns]
    groups = [np.full(len(names), number) for number, (names, _, _) in enumerate(blocks)]
    return Features(
        train=np.concatenate([columns for _, columns, _ in blocks], axis=1, dtype=np.float32),
        test=np.concatenate([columns for _, _, columns in blocks], axis=1, dtype=np.float32),
        names=[name for names, _, _ in blocks for name in names],
        groups=np.concatenate(groups),
    )


def _encode_column(train: Series, test: Series) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Names of the columns that one column becomes, and their values in both splits."""
    if train.dtype.kind in "fiu":
        low, high = train.min(), train.max()
        scaled = [((part - low) / ((high - low) or 1)).clip(0, 1) for part in (train, test)]
        return [str(train.name)], *(part.to_numpy(np.float32)[:, None] for part in scaled)
    categories = np.array(sorted({*train, *test}), dtype=object)
    hot = [part.to_numpy(object)[:, None] == categories for part in (train, test)]
    return [f"{train.name}={category}" for category in categories], *hot
