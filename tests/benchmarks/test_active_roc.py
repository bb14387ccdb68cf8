"""Audits against craftings: the counts of the record's page are those of its tables."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "docs/results/active/detection"


@pytest.fixture(scope="module")
def active_roc(import_script):
    return import_script("active_roc.py")


def test_at_most_one_in_a_hundred_honest_networks_is_above_the_threshold(active_roc):
    honest = np.arange(200.0)
    assert active_roc.above(honest, np.array([196.5, 197.5, 198.5])) == 2


def test_the_page_has_the_counts_of_the_recorded_tables(active_roc):
    honest, crafted = (pd.read_csv(RECORD / f"{name}.csv") for name in ("held_out", "crafted"))
    defaults = crafted[crafted["spec"] == crafted["crafting"]]
    table = active_roc.table_of(honest, defaults)
    assert table in (ROOT / "docs/results/active.md").read_text()
    assert ((defaults[active_roc.NAMES] > 1).any(axis=1)).sum() == len(defaults) == 144
    assert not (honest[active_roc.NAMES] > 1).any(axis=None)
