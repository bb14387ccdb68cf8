from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from gleak.figures.blind_comparison import compare_with_blind, warn_of_weak_attacks
from gleak.studies.study import Study, load_study

Scored = Callable[..., pd.DataFrame]
GRID = {
    "dataset": "digits",
    "model": "lenet",
    "training": "untrained",
    "crafting": "honest",
    "client": "fedsgd",
    "defense": ["none", "gaussian"],
    "attack": ["cpl", "dlg"],
}
HIDES = "the noise hides the gradient"


@pytest.fixture
def scores(scored: Scored) -> pd.DataFrame:
    """CPL is better than blind without noise only, DLG never."""
    return pd.concat(
        [
            scored("mse", [[0.2], [0.2]], attack="blind"),
            scored("mse", [[0.2], [0.2]], attack="blind", defense="gaussian"),
            scored("mse", [[0.1], [0.2]], attack="cpl"),
            scored("mse", [[0.5], [0.5]], attack="cpl", defense="gaussian"),
            scored("mse", [[0.1], [0.3]], attack="dlg"),
            scored("mse", [[0.9], [0.9]], attack="dlg", defense="gaussian"),
            scored("mse", [[0.0]], attack="truth"),
        ]
    )


def make_study(folder: Path, *declared: dict[str, Any]) -> Study:
    content = {
        "title": "t",
        "paper": "p",
        "grids": {"attacks": {**GRID, "no_better_than_blind": list(declared)}},
        "figures": {},
    }
    path = folder / "study.yaml"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return load_study(path)


def test_attacks_are_compared_with_the_blind_of_their_setting(
    scores: pd.DataFrame, tmp_path: Path
) -> None:
    grid = make_study(tmp_path).grid("attacks", "quick")
    table = compare_with_blind(scores, grid.names)
    assert table["ours"].tolist() == pytest.approx([0.15, 0.5, 0.2, 0.9])
    assert table["blind"].tolist() == pytest.approx([0.2] * 4)


@pytest.mark.parametrize(
    ("declared", "warned"),
    [
        ([], ["cpl is no better", "dlg is no better", "dlg is no better"]),
        (
            [{"cells": {"defense": "gaussian"}, "reason": HIDES}],
            ["dlg is no better than blind, which uses no update (mean mse 0.2, blind 0.2)"],
        ),
        (
            [
                {"cells": {"defense": "gaussian"}, "reason": HIDES},
                {"cells": {"attack": "dlg", "defense": "none"}, "reason": "it diverges"},
            ],
            [],
        ),
        (
            [
                {"cells": {"attack": "cpl"}, "reason": HIDES},
                {"cells": {"attack": "dlg"}, "reason": "it diverges"},
            ],
            ["cpl is declared in no_better_than_blind, but is better (mean mse 0.15, blind 0.2)"],
        ),
    ],
)
def test_only_what_is_not_declared_is_named(
    scores: pd.DataFrame,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    declared: list[dict[str, Any]],
    warned: list[str],
) -> None:
    warn_of_weak_attacks(make_study(tmp_path, *declared), "quick", {"attacks": scores})
    assert len(caplog.messages) == len(warned)
    for message, expected in zip(caplog.messages, warned, strict=True):
        assert message.startswith("grid attacks: ") and expected in message
