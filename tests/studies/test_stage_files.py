from __future__ import annotations

import pytest

from gleak.studies.cell import Cell
from gleak.studies.stage_files import datasets_of_victims

LEVELS = {
    "dataset": "cifar10",
    "model": "lenet",
    "training": "untrained",
    "crafting": "honest",
    "client": "fedsgd",
    "defense": "dp+sigma=2",
}


@pytest.mark.parametrize(
    ("attack", "datasets"),
    [("gradient_canaries", 0), ("data_canaries", 1), ("regression", 1), ("cpl", 1)],
)
def test_canaries_that_are_no_samples_need_no_dataset(attack: str, datasets: int):
    assert len(datasets_of_victims([Cell.parse({**LEVELS, "attack": attack})])) == datasets
