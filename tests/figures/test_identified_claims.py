from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gleak.figures.identified_claims import (
    NEAR,
    by_identification,
    judge_by_identification,
    section,
)
from gleak.figures.judge import in_words, judge_claims
from gleak.figures.published import empty_published
from gleak.metrics.score_table import read_scores
from tests.figures.test_judge import make_study
from tests.score_tables import Scored, WriteScores

MET = {"grid": "attacks", "where": {"defense": "none", "dataset": "mnist"}}
ORDER = {**MET, "along": "attack", "order": ["dlg", "cpl"]}
VICTIMS = 40


def identify(folder: Path, tables: dict[str, pd.DataFrame], *claims: dict[str, Any]) -> Any:
    """The verdicts by identification on some claims."""
    study = make_study(folder, [{"source": "Table 2", **claim} for claim in claims])
    own = judge_claims(study, "quick", tables, empty_published())
    own = in_words(study, "quick", own)
    return judge_by_identification(study, "quick", tables, {}, own)


@pytest.fixture
def tables(scored: Scored, write: WriteScores) -> dict[str, pd.DataFrame]:
    """CPL is nearer to the images of digits than DLG, which identifies more of them."""
    noise = np.linspace(-1, 1, VICTIMS)
    near, far = [1.0] * VICTIMS, [0.0] * VICTIMS
    values = {"cpl": (20 + noise, 0.9 + 0 * noise, far), "dlg": (10 + noise, 0.1 + 0 * noise, near)}
    parts = [
        scored(metric, [[float(value)] for value in each], dataset="digits", attack=attack)
        for attack, measured in values.items()
        for metric, each in zip(("psnr", "ssim", "identified"), measured, strict=True)
    ]
    return {"attacks": read_scores([write("scores/attacks.csv", *parts)])}


def test_a_claim_that_holds_by_psnr_and_ssim_can_fail_by_identification(
    tmp_path: Path, tables: dict[str, pd.DataFrame]
):
    table = identify(tmp_path, tables, {**ORDER, "metric": ["psnr", "ssim"]})
    (row,) = table.to_dict("records")
    assert (row["verdict"], row["ours"], row["n"]) == ("fails", "-1", VICTIMS)
    assert row[NEAR] == {"psnr (dB)": "holds", "ssim": "holds"}
    assert "psnr (dB): holds; ssim: holds" in section(table)[2]


def test_verdicts_that_change_are_first(tmp_path: Path, tables: dict[str, pd.DataFrame]):
    reverse = {**ORDER, "order": ["cpl", "dlg"], "metric": "mse", "claim": "not about nearness"}
    same = {**MET, "metric": "psnr", "along": "attack", "order": ["cpl", "dlg"], "within": 0.1}
    table = identify(tmp_path, tables, reverse, same, {**ORDER, "metric": "psnr"})
    assert table["verdict"].tolist() == ["fails", "fails"]
    assert table[NEAR].tolist() == [{"psnr (dB)": "holds"}, {"psnr (dB)": "fails"}]
    assert "reverse: 1" in section(table)[1]


def test_without_identification_nothing_is_shown(tmp_path: Path, tables: dict[str, pd.DataFrame]):
    rest = {grid: table[table["metric"] != "identified"] for grid, table in tables.items()}
    assert not section(identify(tmp_path, rest, {**ORDER, "metric": "psnr"}))


@pytest.mark.parametrize(
    ("claim", "changed"),
    [
        ({"metric": "psnr", "margin": 2.0, "factor": 2.0}, {"margin": 0.0, "factor": 1.0}),
        ({"metric": "ssim", "relation": "<=", "margin": 0.01}, {"margin": 0.05}),
        ({"metric": "success_content", "margin": 0.1}, {"margin": 0.1}),
    ],
)
def test_margins_are_of_shares(tmp_path: Path, claim: dict[str, Any], changed: dict[str, float]):
    (own,) = make_study(tmp_path, [{**ORDER, **claim}]).expectations
    asked = by_identification(own)
    assert asked is not None and asked.metric == "identified"
    assert {name: getattr(asked, name) for name in changed} == changed


def test_of_bounds_those_of_shares_are_kept(tmp_path: Path):
    study = make_study(
        tmp_path,
        [
            {**MET, "metric": "success_content", "at_most": 0.4},
            {**MET, "metric": "psnr", "at_most": 12.0},
            {**MET, "metric": "iterations", "at_most": 12.0},
        ],
    )
    asked = [by_identification(claim) for claim in study.expectations]
    assert [each and each.comparisons for each in asked] == [
        study.expectations[0].comparisons,
        None,
        None,
    ]
