from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from gleak.artifacts.audit_trials import AuditTrials
from gleak.core.registry import parse
from gleak.figures.statistics import join_cells
from gleak.metrics.score_audit import score_audit
from gleak.studies.axis_labels import AxisLabels
from gleak.studies.cell import Cell
from gleak.studies.figure_spec import FigureData
from tests.score_tables import DrawTwice, make_figure

CELL = "digits/lenet/untrained/honest/fedsgd"
LEVELS = ("dataset", "model", "training", "crafting", "client", "defense", "attack")
RATES = (0.01, 0.1, 0.5, 0.9)
FIGURE = make_figure("trade_off_function", grid="defences", facets="defense", rates=RATES)


@pytest.fixture
def audits(tmp_path: Path) -> FigureData:
    """Normal scores of a defence that guarantees mu = 1, and of one that guarantees nothing."""
    random, tables, cells = np.random.default_rng(0), [], []
    metrics = [parse("metric", text) for text in FIGURE.used_metrics]
    for defense, mu in {"dp+sigma=2": 1.0, "gaussian+std=500": 3.0}.items():
        texts = dict(zip(LEVELS, [*CELL.split("/"), defense, "gradient_canaries"], strict=True))
        present = random.random(4000) < 0.5
        trials = AuditTrials(score=random.normal(mu * present, 1), present=present)
        trials.write(tmp_path / "audit.h5")
        tables.append(score_audit(tmp_path / "audit.h5", tmp_path / "s.csv", texts, metrics))
        cells.append(Cell.parse(texts))
    axes = {level: tuple(dict.fromkeys(cell.specs[level] for cell in cells)) for level in LEVELS}
    names = AxisLabels(axes)
    return FigureData(
        scores=join_cells(pd.concat(tables), names),
        published=pd.DataFrame(columns=["figure"]),
        names=names,
    )


def test_curves_are_written_the_same_each_time(draw_twice: DrawTwice, audits: FigureData):
    draw_twice(FIGURE, audits)


def test_the_table_has_measured_errors_between_what_is_proven_and_what_was_found(
    audits: FigureData, tmp_path: Path
):
    FIGURE.draw(audits, tmp_path / "errors")
    table = pd.read_csv(tmp_path / "errors.csv")
    private, plain = (rows for _, rows in table.groupby("facet", sort=False))
    assert private["fpr"].tolist() == list(RATES)
    assert private["proven"].to_numpy() == pytest.approx(norm.cdf(norm.isf(RATES) - 1), rel=1e-5)
    assert ((private["low"] <= private["proven"]) & (private["proven"] <= private["high"])).all()
    likelier = np.exp(table["epsilon_measured"])
    allowed = np.maximum(1 - 1e-5 - likelier * table["fpr"], (1 - 1e-5 - table["fpr"]) / likelier)
    np.testing.assert_allclose(table["allowed"], allowed)
    assert plain["proven"].isna().all()
    assert plain["epsilon_measured"].notna().all()
