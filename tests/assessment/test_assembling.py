from __future__ import annotations

import pandas as pd

from gleak.assessment.assembling import captured_rounds, rounds_of
from gleak.experiments.cell import Cell
from tests.assessment.test_exposure import SSIM, rows


def captured(name: str) -> Cell:
    levels = {
        "dataset": "digits",
        "model": "lenet",
        "training": f"captured+capture={name}",
        "crafting": "honest",
        "client": f"captured+capture={name}",
    }
    return Cell.parse(levels)


def test_captures_of_one_training_are_its_rounds() -> None:
    names = ["mine-10", "other-1", "mine-2", "ward-b-3", "ward-b-1", "hand", "hand-a"]
    cells = {name: captured(name) for name in names}
    assert rounds_of(cells.values()) == {
        "mine": {10: cells["mine-10"], 2: cells["mine-2"]},
        "ward-b": {3: cells["ward-b-3"], 1: cells["ward-b-1"]},
    }


def test_leakage_along_rounds_is_that_to_one_attack() -> None:
    """The other one finds more in round 2 alone, which would look like a difference of rounds."""
    cells = [captured("mine-10"), captured("mine-2")]
    found = {"mine-10": [[0.9], [0.2]], "mine-2": [[0.1], [0.3]]}
    tables = [
        table.assign(training=f"captured+capture={name}", client=f"captured+capture={name}")
        for name, values in found.items()
        for table in (rows("best", values), rows("blind", [[0.1], [0.1]]))
    ]
    stronger = tables[2].assign(attack="invertgrad", value=1.0)
    (rounds,) = captured_rounds(cells, pd.concat([*tables, stronger]), "best", [SSIM])
    assert rounds.field == "round of mine"
    points = [(point.number, [each.above for each in point.exposures]) for point in rounds.points]
    assert points == [(2, [0]), (10, [1])]
