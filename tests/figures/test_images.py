from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from gleak.artifacts.private import Private
from gleak.artifacts.reconstruction import Reconstruction
from gleak.errors import FitError
from gleak.figures.base import Material, Shown
from gleak.figures.images_drawing import read_strips
from gleak.figures.names import Names
from gleak.registry import find
from gleak.spec import build_spec

VICTIMS, SAMPLES, STEPS = 3, 2, (0, 5, 10, 20, 40)


def make(**fields: Any) -> Any:
    return build_spec(find("figure", "images"), {"grid": "attacks", **fields})


@pytest.fixture
def shown(tmp_path: Path, cell: Callable[..., dict[str, str]]) -> Callable[..., Shown]:
    """A cell whose result is the truth plus 0.1, its samples in the other order."""

    def make(channels: int = 3, snapshots: bool = True, **levels: str) -> Shown:
        row = cell(**levels)
        folder = tmp_path / row["attack"]
        folder.mkdir()
        shape = (VICTIMS, SAMPLES, channels, 8, 8)
        truth = np.random.default_rng(0).random(shape, dtype=np.float32) * 0.5
        found = truth[:, ::-1] + np.float32(0.1)
        books: dict[str, Any] = {}
        if snapshots:
            shares = np.linspace(0, 1, len(STEPS), dtype=np.float32).reshape(1, -1, 1, 1, 1, 1)
            books["snapshots"] = found[:2, None] * shares
            books["snapshot_iteration"] = np.array(STEPS)
            books["iterations"] = np.array([7, 8, 9])
        labels = np.zeros((VICTIMS, SAMPLES), dtype=int)
        Private(inputs=truth, labels=labels, indices=labels).write(folder / "private.h5")
        converged = np.ones(VICTIMS, dtype=bool)
        Reconstruction(inputs=found, labels=labels, converged=converged, **books).write(
            folder / "reconstruction.h5"
        )
        return Shown(row, folder / "reconstruction.h5", folder / "private.h5")

    return make


def test_rows_hold_truth_start_snapshots_and_result(shown: Callable[..., Shown]):
    strips = read_strips(make(victims=2, samples=2, snapshots=2), shown())
    assert [(strip.victim, strip.sample) for strip in strips] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert [(p.step, p.iteration) for p in strips[2].pictures] == [
        ("truth", None),
        ("start", 0),
        ("snapshot", 5),
        ("snapshot", 40),
        ("result", 8),
    ]


def test_samples_are_matched_to_the_truth(shown: Callable[..., Shown]):
    for strip in read_strips(make(samples=2), shown()):
        assert strip.pictures[-1].mse == pytest.approx(0.01, rel=1e-5)


def test_the_last_snapshot_follows_its_own_sample(shown: Callable[..., Shown]):
    strip = read_strips(make(samples=2, snapshots=4), shown())[1]
    result, last = strip.pictures[-1], strip.pictures[-2]
    assert result.pixels is not None and last.pixels is not None
    np.testing.assert_array_equal(result.pixels, last.pixels)


def test_victims_without_snapshots_have_gaps_and_no_error(
    shown: Callable[..., Shown], names: Names, nothing_published: pd.DataFrame, tmp_path: Path
):
    material = Material(pd.DataFrame(), nothing_published, names, [shown()])
    make().draw(material, tmp_path / "images")
    table = pd.read_csv(tmp_path / "images.csv")
    assert table["mse"].isna().groupby(table["victim"]).sum().to_dict() == {0: 0, 1: 0, 2: 5}
    assert table.loc[table["step"] == "result", "iteration"].tolist() == [7, 8, 9]


def test_attacks_without_snapshots_show_truth_and_result(shown: Callable[..., Shown]):
    strips = read_strips(make(), shown(snapshots=False))
    assert {tuple(p.step for p in strip.pictures) for strip in strips} == {("truth", "result")}


def test_grey_images_stay_grey(
    shown: Callable[..., Shown], names: Names, nothing_published: pd.DataFrame, tmp_path: Path
):
    cells = [shown(channels=1), shown(channels=1, snapshots=False, attack="dlg")]
    make(victims=1).draw(
        Material(pd.DataFrame(), nothing_published, names, cells), tmp_path / "images"
    )
    with Image.open(tmp_path / "images.png") as picture:
        pixels = np.asarray(picture.convert("RGB"), dtype=int)
    assert (pixels.max(axis=2) - pixels.min(axis=2)).max() == 0
    assert pixels.std() > 10


def test_tables_have_no_images(shown: Callable[..., Shown], tmp_path: Path):
    good = shown()
    private = Private.read(good.private)
    flat = private.inputs.reshape(VICTIMS, SAMPLES, -1)
    Private(inputs=flat, labels=private.labels, indices=private.indices, modality="tabular").write(
        tmp_path / "private.h5"
    )
    with pytest.raises(FitError, match="holds tabular data"):
        read_strips(make(), Shown(good.row, good.reconstruction, tmp_path / "private.h5"))
