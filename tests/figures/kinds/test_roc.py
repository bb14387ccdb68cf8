from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from gleak.core.registry import parse
from gleak.figures.statistics import join_cells
from gleak.metrics.discrimination import RankedCandidates
from gleak.metrics.score_table import COLUMNS, OK, TYPES
from gleak.studies.axis_labels import AxisLabels
from gleak.studies.cell import Cell
from gleak.studies.figure_spec import FigureData
from tests.score_tables import DrawTwice, make_figure

RATES = (0.01, 0.1, 0.5)
CELL = "digits/lenet/untrained/honest/fedsgd+batch_size=16/none"
LEVELS = ("dataset", "model", "training", "crafting", "client", "defense", "attack")
STRENGTH = {"gradient_cosine": 0.5, "regression": 3.0}


@pytest.fixture
def membership() -> FigureData:
    """Eight victims with ten members among a hundred candidates, for a weak and a strong attack."""
    random, rows, cells = np.random.default_rng(0), [], {}
    for attack, strength in STRENGTH.items():
        texts = dict(zip(LEVELS, [*CELL.split("/"), attack], strict=True))
        cells[attack] = Cell.parse(texts)
        member = np.tile(np.arange(100) < 10, (8, 1))
        ranked = RankedCandidates(random.normal(size=(8, 100)) + strength * member, member)
        for rate in RATES:
            metric = parse("metric", f"tpr+fpr={rate}")
            for victim, values in enumerate(metric.measure(ranked)):
                fixed = {**texts, "victim": victim, "metric": str(metric), "status": OK}
                fixed |= {"grants": "candidates", "reason": ""}
                rows += [{**fixed, "sample": n, "value": v} for n, v in enumerate(values)]
    table = pd.DataFrame(rows, columns=COLUMNS).astype(TYPES)
    axes = {
        level: tuple(dict.fromkeys(cell.specs[level] for cell in cells.values()))
        for level in LEVELS
    }
    names = AxisLabels(axes)
    return FigureData(
        scores=join_cells(table, names),
        published=pd.DataFrame(columns=["figure"]),
        names=names,
        shown=[],
        trained=[],
        conditions={},
        gates=None,
    )


def test_curves_are_written_the_same_each_time(
    draw_twice: DrawTwice, membership: FigureData
) -> None:
    draw_twice(make_figure("roc", grid="members", hue="attack", rates=RATES), membership)


def test_the_table_has_the_rates_with_exact_intervals(
    membership: FigureData, tmp_path: Path
) -> None:
    figure = make_figure("roc", grid="members", hue="attack", rates=RATES)
    figure.draw(membership, tmp_path / "roc")
    table = pd.read_csv(tmp_path / "roc.csv")
    assert table["fpr"].tolist() == [*RATES, *RATES]
    assert table["attack"].tolist() == ["gradient_cosine"] * 3 + ["regression"] * 3
    assert (table["low"] <= table["ours"]).all()
    assert (table["ours"] <= table["high"]).all()
    strong = table[table["attack"] == "regression"]
    assert strong["ours"].is_monotonic_increasing
    assert (table["count"] == 80).all()
