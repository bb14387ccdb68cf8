from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gleak.artifacts.model import Knowledge
from gleak.artifacts.reconstruction import Reconstruction
from gleak.core.errors import IncompatibleError, SpecError
from gleak.figures.kinds.convergence import tabulate_traces
from gleak.studies.axis_labels import AxisLabels
from gleak.studies.figure_spec import FigureData, Shown
from tests.score_tables import DrawTwice, MakeCell, ShowCell, make_figure

LARGE, SMALL = ({"dataset": "digits", "spec": f"codec+size={size}"} for size in (128, 64))
OTHER = {"dataset": "digits", "spec": "postprocessor"}
LABELS = {"codec+size=128": "128", "codec+size=64": "64", "postprocessor": "U-Net", "mse": "MSE"}


def make_losses(*trained: dict[str, str], **fields: Any) -> Any:
    return make_figure("losses", knowledge=list(trained), **fields)


@pytest.fixture
def store(tmp_path: Path) -> Callable[..., list[Path]]:
    """Write knowledge whose losses fall from 1, one file for each training of a figure."""

    def write(figure: Any) -> list[Path]:
        files = []
        for number, one in enumerate(figure.trainings("paper")):
            files.append(tmp_path / "knowledge" / f"{number}.h5")
            steps = np.arange(1, 6) * 10
            Knowledge(
                knowledge=str(one.knowledge),
                dataset=str(one.dataset),
                class_names=np.array([], object),
                input_shape=np.array([1, 16, 16]),
                parameters={},
                buffers={},
                loss_step=steps,
                losses={name: 1 / (number + steps) for name in one.knowledge.losses},
                fingerprints=np.zeros(3, np.uint64),
            ).write(files[-1])
        return files

    return write


@pytest.mark.slow
def test_losses_are_the_same_each_time_and_hold_every_point(
    store: Callable[..., list[Path]],
    nothing_published: pd.DataFrame,
    draw_twice: DrawTwice,
    tmp_path: Path,
) -> None:
    figure = make_losses(LARGE, SMALL, OTHER, labels=LABELS)
    files = store(figure)
    draw_twice(figure, FigureData(pd.DataFrame(), nothing_published, AxisLabels({}), trained=files))
    table = pd.read_csv(tmp_path / "first.csv")
    assert list(table) == ["dataset", "knowledge", "loss", "step", "value"]
    assert len(table) == (1 + 1 + 3) * 5
    for (spec, loss), curve in table.groupby(["knowledge", "loss"]):
        number = [one["spec"] for one in (LARGE, SMALL, OTHER)].index(spec)
        stored = Knowledge.read(files[number])
        np.testing.assert_allclose(curve["value"], stored.losses[loss], rtol=1e-8)
        assert curve["step"].tolist() == stored.loss_step.tolist()


def test_a_scale_may_show_other_trainings() -> None:
    cheap = {"dataset": "digits", "spec": "codec+steps=9+size=64"}
    figure = make_losses(LARGE, SMALL, quick={"knowledge": [cheap]}, labels={"codec+size=64": "64"})
    specs = {scale: [str(one) for one in figure.trainings(scale)] for scale in ("quick", "small")}
    assert specs == {
        "quick": ["digits/codec+steps=9+size=64"],
        "small": ["digits/codec+size=128", "digits/codec+size=64"],
    }
    assert figure.call(figure.trainings("quick")) == ["64"]


def test_a_training_is_called_by_label_or_spec_and_by_dataset_where_these_differ() -> None:
    other = {"dataset": "photos", "spec": "codec+size=64"}
    figure = make_losses(
        SMALL, other, OTHER, labels={"postprocessor": "U-Net", "photos": "pictures"}
    )
    assert figure.call(figure.trainings("paper")) == [
        "codec+size=64 on digits",
        "codec+size=64 on pictures",
        "U-Net on digits",
    ]
    alone = make_losses(SMALL)
    assert alone.call(alone.trainings("paper")) == ["codec+size=64"]


def test_specs_need_not_be_canonical_and_are_keys_of_its_job() -> None:
    figure = make_losses({"dataset": "digits+size=16", "spec": "codec+size=064"})
    assert figure.resolved()["knowledge"] == [SMALL]
    assert figure == make_losses(SMALL) == make_figure("losses", knowledge=SMALL)


@pytest.mark.parametrize(
    ("trained", "fields", "fault"),
    [
        ([{**SMALL, "dataset": "digts"}], {}, "unknown dataset 'digts'; did you mean 'digits'"),
        ([{**SMALL, "spec": "codek"}], {}, "unknown knowledge 'codek'; did you mean 'codec'"),
        ([{**SMALL, "dataset": "adult"}], {}, "needs images, but adult contains tabular data"),
        ([SMALL], {"labels": {"mze": "MSE"}}, "label 'mze' matches nothing here; .*'mse'"),
        ([SMALL, SMALL], {}, "2 trainings are called codec.size=64; give each a label"),
    ],
)
def test_faults_are_named(
    trained: list[dict[str, str]], fields: dict[str, Any], fault: str
) -> None:
    with pytest.raises(SpecError, match=fault):
        make_losses(*trained, **fields)


FALLING = np.array([[1.0, 0.5, 0.25], [1.0, 0.1, 0.01], [1.0, 0.3, 0.1]])


def make_traces(**fields: Any) -> Any:
    return make_figure("traces", grid="attacks", **fields)


@pytest.fixture
def traced(shown: ShowCell) -> Callable[..., Shown]:
    """A cell with the objective of its 3 victims at iterations 0, 10 and 20."""

    def trace(scale: float = 1.0, **levels: str) -> Shown:
        cell = shown(**levels)
        found = Reconstruction.read(cell.reconstruction)
        books = {"trace_iteration": np.array([0, 10, 20]), "trace_objective": scale * FALLING}
        replace(found, **books).write(cell.reconstruction)
        return cell

    return trace


@pytest.fixture
def material(
    traced: Callable[..., Shown], names: AxisLabels, nothing_published: pd.DataFrame
) -> FigureData:
    cells = [traced(), traced(0.1, attack="dlg"), traced(0.01, defense="gaussian")]
    return FigureData(pd.DataFrame(), nothing_published, names, cells)


@pytest.mark.slow
def test_traces_are_the_same_each_time(material: FigureData, draw_twice: DrawTwice):
    draw_twice(make_traces(facets="defense"), material)


def test_a_curve_is_the_mean_of_the_victims_between_the_best_and_the_worst(material: FigureData):
    table = tabulate_traces(make_traces(facets="defense"), material)
    first = table[(table["hue"] == "CPL") & (table["facet"] == "none")]
    assert first["iteration"].tolist() == [0, 10, 20]
    np.testing.assert_allclose(first["mean"], FALLING.mean(axis=0))
    assert first[["low", "high"]].to_numpy().tolist() == [[1, 1], [0.1, 0.5], [0.01, 0.25]]
    assert set(first["victims"]) == {3}
    assert table.groupby(["hue", "facet"], sort=False).ngroups == 3


def test_an_attack_that_kept_no_trace_is_named(
    shown: ShowCell, names: AxisLabels, nothing_published: pd.DataFrame
):
    material = FigureData(pd.DataFrame(), nothing_published, names, [shown()])
    with pytest.raises(IncompatibleError, match=r"reconstruction.h5: its attack recorded no trace"):
        tabulate_traces(make_traces(), material)


def test_attacks_without_iterations_are_refused_and_controls_left_out(
    names: AxisLabels, cell: MakeCell
):
    rows = [cell(attack=attack) for attack in ("cpl+restarts=0", "blind", "truth")]
    make_traces().check(names, rows)
    assert make_traces().chosen(names, rows) == rows[:1]
    with pytest.raises(SpecError, match="attack 'aono' has no iterations to plot"):
        make_traces().check(names, [*rows, cell(attack="aono")])
