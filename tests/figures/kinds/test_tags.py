"""Tags of images, by a tagger that tells how bright they are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from torch import Tensor, nn

from gleak.artifacts.model import Knowledge
from gleak.artifacts.reconstruction import Reconstruction
from gleak.core.errors import SpecError
from gleak.figures.kinds import tags
from gleak.studies.axis_labels import AxisLabels
from gleak.studies.cell import LEVELS
from gleak.studies.figure_spec import FigureData, Shown
from tests.score_tables import MakeCell, ShowCell, make_figure

TAGGER = {"dataset": "digits", "spec": "tagger"}
WORDS = ["black", "dim", "grey", "light", "white"]


class Brightness(nn.Module):
    """The two words nearest to the mean of an image."""

    def tags(self, images: Tensor) -> Tensor:
        place = 4 * images.mean((1, 2, 3))
        return (place[:, None] - place.new_tensor(range(5))).abs().argsort(1)[:, :2]


@pytest.fixture
def tagger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "knowledge.h5"
    Knowledge(
        class_names=np.array(WORDS),
        input_shape=np.array([3, 8, 8]),
        parameters={},
        buffers={},
        loss_step=np.zeros(0, int),
        losses={},
        fingerprints=np.zeros(1, np.uint64),
    ).write(path)
    monkeypatch.setattr(tags, "load_knowledge", lambda *_: ("tagger", Brightness()))
    return path


def make(**fields: Any) -> Any:
    return make_figure("tags", **{"grid": "attacks", "knowledge": TAGGER, **fields})


def draw(figure: Any, tagger: Path, names: AxisLabels, stem: Path, *cells: Shown) -> pd.DataFrame:
    nothing = pd.DataFrame(columns=["metric", "sample", "victim", "value", *LEVELS])
    figure.draw(FigureData(nothing, pd.DataFrame(), names, cells, [tagger]), stem)
    return pd.read_csv(stem.with_suffix(".csv"))


def test_tags_stand_in_words_beside_the_share_that_is_in_both(
    tagger: Path, names: AxisLabels, shown: ShowCell, tmp_path: Path
) -> None:
    cell = shown()
    found = Reconstruction.read(cell.reconstruction)
    bright = found.inputs.copy()
    bright[0] = 1
    replace(found, inputs=bright).write(cell.reconstruction)
    table = draw(make(victims=2), tagger, names, tmp_path / "tags", cell)
    assert table["truth"].tolist() == ["dim, grey", "dim, grey"]
    assert table["found"].tolist() == ["white, light", "dim, grey"]
    assert table["jaccard"].tolist() == [0, 1]
    text = (tmp_path / "tags.html").read_text()
    assert "white, light" in text
    assert text.count("original") == 2


def test_an_original_that_several_cells_sought_stands_there_once(
    tagger: Path, names: AxisLabels, shown: ShowCell, tmp_path: Path
) -> None:
    cells = [shown(snapshots=False, attack=attack) for attack in ("cpl", "dlg")]
    other = shown(snapshots=False, dataset="photos", seed=1)
    for sought, originals in ((cells, 1), ([*cells, other], 2)):
        draw(make(victims=1), tagger, names, tmp_path / "tags", *sought)
        text = (tmp_path / "tags.html").read_text()
        assert text.count("original") == originals
        assert "CPL" in text and "dlg" in text


def test_an_image_that_was_not_found_has_no_tags(
    tagger: Path, names: AxisLabels, shown: ShowCell, tmp_path: Path
) -> None:
    cell = shown(snapshots=False)
    found = Reconstruction.read(cell.reconstruction)
    nothing = np.zeros(found.labels.shape, int)
    replace(found, averaged_count=nothing).write(cell.reconstruction)
    table = draw(make(victims=1), tagger, names, tmp_path / "tags", cell)
    assert table["found"].isna().all()
    assert table["jaccard"].tolist() == [0]


@pytest.mark.parametrize(
    "knowledge",
    [{"dataset": "digits", "spec": "codec+size=64"}, [TAGGER, {**TAGGER, "spec": "tagger+tags=2"}]],
)
def test_tags_are_given_by_one_tagger(knowledge: Any) -> None:
    with pytest.raises(SpecError, match="must be a single tagger"):
        make(knowledge=knowledge)


def test_attacks_are_scored_by_the_same_tagger(names: AxisLabels, cell: MakeCell) -> None:
    attack = "rog+tagger=tagger~tags=2"
    named = AxisLabels.read({**names.values, "attack": (attack,)})
    with pytest.raises(SpecError, match=r"is scored by tagger\+tags=2, but .* is tagger; use"):
        make(metric="mse").check(named, [cell(attack=attack)])
