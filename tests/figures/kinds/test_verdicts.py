from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from gleak.core.errors import SpecError
from gleak.figures.kinds.verdicts import tabulate_findings
from gleak.figures.published import empty_published
from gleak.metrics.score_table import refused_scores
from gleak.studies.axis_labels import AxisLabels
from gleak.studies.figure_spec import FigureData
from gleak.studies.gates import Gates
from tests.score_tables import DrawTwice, Scored, make_figure, read_cell, read_page

WEAK, STRONG = "gaussian", "gaussian+std=0.1"
GATES = Gates(margins={"psnr": 1.0}, strengths=[[WEAK, STRONG]])
MEANS = {
    "lenet": {"none": 40.0, WEAK: 20.0, STRONG: 12.0},
    "fc2": {"none": 30.0, WEAK: 40.0, STRONG: 12.0},
}


def make(**fields: Any) -> Any:
    base = {"grid": "attacks", "rows": ["defense"], "columns": ["model"], "metric": "psnr"}
    return make_figure("verdicts", **{**base, **fields})


@pytest.fixture
def material(names: AxisLabels, scored: Scored) -> FigureData:
    """Two networks, one of which is attacked less without a defence; a refused cell."""
    values = {**names.values, "model": tuple(MEANS), "defense": ("none", WEAK, STRONG, "topk")}
    values["attack"] = ("cpl", "blind")
    tables = []
    for model, means in MEANS.items():
        for defense, mean in means.items():
            for attack, level in (("cpl", mean), ("blind", 12.0)):
                spread = [[level + step / 4] for step in range(-5, 6)]
                levels = {"model": model, "defense": defense, "attack": attack}
                tables.append(scored("psnr", spread, **levels))
    levels = {key: str(tables[0][key].iloc[0]) for key in ("dataset", "training", "crafting")}
    levels |= {"client": "fedsgd", "model": "fc2", "defense": "topk", "attack": "cpl"}
    refused = refused_scores(levels, "why not").assign(cell=[read_cell(levels)])
    table = pd.concat([*tables, refused])
    return FigureData(table, empty_published(), AxisLabels.read(values), gates=GATES)


def test_each_cell_has_a_verdict_and_its_distance_from_blind(material: FigureData):
    found = tabulate_findings(make(), material, GATES).set_index(["model", "defense"])
    assert found["verdict"].to_dict() == {
        ("lenet", "none"): "leaks",
        ("lenet", WEAK): "leaks",
        ("lenet", STRONG): "hides",
        ("fc2", "none"): "under-attacked",
        ("fc2", WEAK): "leaks",
        ("fc2", STRONG): "under-attacked",
        ("fc2", "topk"): "no data",
    }
    assert found.loc[("lenet", WEAK), ["above", "low", "high", "n"]].tolist() == [8, 8, 8, 11]
    assert found.loc[("fc2", "topk"), "reason"] == "why not"


def test_the_table_says_what_it_shows(material: FigureData, draw_twice: DrawTwice, tmp_path: Path):
    draw_twice(make(), material)
    rows, below = read_page(tmp_path / "first.html")
    assert rows[-2:] == [
        ["gaussian (std=0.1)", "hides [0, 0]", "under-attacked [0, 0]"],
        ["topk", "–", "n/a"],
    ]
    assert "margin 1." in below
    assert "under-attacked: the same victims leak more" in below
    assert "why not" in below


def test_a_grid_without_gates_is_refused():
    for gates in (None, Gates(margins={"ssim": 0.1}, strengths=[])):
        with pytest.raises(SpecError, match="no gates with a margin of 'psnr'; add them"):
            make().check_gates(gates)
