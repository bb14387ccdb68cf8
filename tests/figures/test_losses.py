from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gleak.artifacts.knowledge import Knowledge
from gleak.core.errors import SpecError
from gleak.core.registry import find, parse
from gleak.core.spec import build_spec
from gleak.experiments.figure_spec import FigureData, FigureSpec
from gleak.experiments.labels import AxisLabels
from gleak.figures.losses_drawing import tabulate_losses

LARGE, SMALL = ({"dataset": "digits", "spec": f"codec+size={size}"} for size in (128, 64))
OTHER = {"dataset": "digits", "spec": "postprocessor"}
LABELS = {"codec+size=128": "128", "codec+size=64": "64", "postprocessor": "U-Net", "mse": "MSE"}


def make(*trained: dict[str, str], **fields: Any) -> Any:
    return build_spec(find("figure", "losses"), {"knowledge": list(trained), **fields})


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


def test_files_are_the_same_each_time_and_hold_every_point(
    store: Callable[..., list[Path]],
    nothing_published: pd.DataFrame,
    draw_twice: Callable[[FigureSpec, FigureData], None],
    tmp_path: Path,
) -> None:
    figure = make(LARGE, SMALL, OTHER, labels=LABELS)
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
    pd.testing.assert_frame_equal(
        table, tabulate_losses(list(map(Knowledge.read, files))).reset_index(drop=True)
    )


def test_a_scale_may_show_other_trainings() -> None:
    cheap = {"dataset": "digits", "spec": "codec+steps=9+size=64"}
    figure = make(LARGE, SMALL, quick={"knowledge": [cheap]}, labels={"codec+size=64": "64"})
    specs = {scale: [str(one) for one in figure.trainings(scale)] for scale in ("quick", "small")}
    assert specs == {
        "quick": ["digits/codec+steps=9+size=64"],
        "small": ["digits/codec+size=128", "digits/codec+size=64"],
    }
    assert figure.call(figure.trainings("quick")) == ["64"]


def test_a_training_is_called_by_label_or_spec_and_by_dataset_where_these_differ() -> None:
    other = {"dataset": "photos", "spec": "codec+size=64"}
    figure = make(SMALL, other, OTHER, labels={"postprocessor": "U-Net", "photos": "pictures"})
    assert figure.call(figure.trainings("paper")) == [
        "codec+size=64 on digits",
        "codec+size=64 on pictures",
        "U-Net on digits",
    ]
    alone = make(SMALL)
    assert alone.call(alone.trainings("paper")) == ["codec+size=64"]


def test_specs_need_not_be_canonical_and_are_keys_of_its_job() -> None:
    figure = make({"dataset": "digits+size=16", "spec": "codec+size=064"})
    assert figure.resolved()["knowledge"] == [SMALL]
    assert figure == make(SMALL) == build_spec(type(figure), {"knowledge": SMALL})
    assert parse("knowledge", "codec+size=64").losses == ("mse",)


@pytest.mark.parametrize(
    ("trained", "fields", "fault"),
    [
        ([], {}, "at least 1 item"),
        ([{"dataset": "digits"}], {}, "knowledge.*Field required"),
        ([{**SMALL, "scale": "x"}], {}, "Extra inputs are not permitted"),
        ([{**SMALL, "dataset": "digts"}], {}, "unknown dataset 'digts'; did you mean 'digits'"),
        ([{**SMALL, "spec": "codek"}], {}, "unknown knowledge 'codek'; did you mean 'codec'"),
        ([{**SMALL, "dataset": "adult"}], {}, "is of images, and adult holds tabular data"),
        ([SMALL], {"quick": {"knowledge": [{"dataset": "digits"}]}}, "quick.*Field required"),
        ([SMALL], {"labels": {"mze": "MSE"}}, "label 'mze' is of nothing here; .*'mse'"),
        ([SMALL, SMALL], {}, "2 trainings are called codec.size=64; give each a label"),
        ([SMALL], {"grid": "attacks"}, "unknown field 'grid'"),
    ],
)
def test_faults_are_named(
    trained: list[dict[str, str]], fields: dict[str, Any], fault: str
) -> None:
    with pytest.raises(SpecError, match=fault):
        make(*trained, **fields)
