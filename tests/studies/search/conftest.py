"""Fixture for a search on digits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gleak.studies.cell import LEVELS
from gleak.studies.search.declaration import Declaration, SpecSearch, read_search

CELL = "digits/lenet+width=4/untrained+init=uniform/honest/fedsgd+victims=2+split=train/none"
DECLARED: dict[str, Any] = {
    **dict(zip(LEVELS, CELL.split("/"), strict=False)),
    "attack": "cpl+iterations=3+alpha=0.5",
    "ranges": {"alpha": {"low": 1e-5, "high": 10, "log": True}},
    "trials": 3,
    "metric": "mse",
}


@pytest.fixture
def declare() -> Callable[..., SpecSearch]:
    """Return a factory of the search with changed keys; None removes a key."""

    def make(**keys: Any) -> SpecSearch:
        return read_search("weights", Declaration(**{**DECLARED, **keys}))

    return make
