"""Tiny tables of scores and the names that go with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from gleak.figures.names import Names
from gleak.figures.published import REQUIRED
from gleak.metrics.scores import COLUMNS, TYPES

LEVELS = {
    "dataset": "digits",
    "model": "lenet",
    "training": "untrained",
    "crafting": "honest",
    "client": "fedsgd",
    "defense": "none",
    "attack": "cpl",
}


@pytest.fixture
def cell() -> Callable[..., dict[str, str]]:
    """The levels of a cell, with any of them changed."""
    return lambda **levels: {**LEVELS, **levels}


@pytest.fixture
def scored() -> Callable[..., pd.DataFrame]:
    """Rows of one metric of one cell: a value per victim, or a list of them, one per sample."""

    def make(metric: str, values: Sequence[Any], status: str = "ok", **levels: str) -> pd.DataFrame:
        grants = levels.pop("grants", "")
        rows = [
            {"victim": victim, "sample": sample, "value": value}
            for victim, entry in enumerate(values)
            for sample, value in (enumerate(entry) if isinstance(entry, list) else [(pd.NA, entry)])
        ]
        fixed = {**LEVELS, **levels, "metric": metric, "status": status, "grants": grants}
        return pd.DataFrame([{**fixed, **row} for row in rows])[list(COLUMNS)].astype(TYPES)

    return make


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Tables of scores as one file."""

    def make(name: str, *tables: pd.DataFrame) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pd.concat(tables).to_csv(path, index=False)
        return path

    return make


@pytest.fixture
def names() -> Names:
    """Two datasets, one a stand-in; a defence in several strengths; attacks with the controls."""
    values = {level: (value,) for level, value in LEVELS.items()}
    values["dataset"] = ("photos", "digits")
    values["defense"] = ("none", "gaussian+std=1e-4", "gaussian", "laplace+std=1e-4")
    values["attack"] = ("cpl+restarts=0", "dlg", "blind", "truth")
    labels = {"cpl": "CPL", "cifar10": "CIFAR-10", "gaussian": "Gaussian", "mse": "MSE"}
    return Names(values, {"dataset": {"photos": "cifar10"}}, labels)


@pytest.fixture
def nothing_published() -> pd.DataFrame:
    return pd.DataFrame({column: [] for column in REQUIRED})
