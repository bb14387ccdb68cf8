from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from gleak.artifacts.reconstruction import Reconstruction
from gleak.core.errors import SpecError
from gleak.figures.canvas.image_grid import EMPTY, MISSING, Tile, TileRow
from gleak.figures.kinds.images import MOST_COLUMNS, lay_out_results, lay_out_search, wrapped
from gleak.figures.kinds.samples import read_strips, read_values
from gleak.studies.axis_labels import AxisLabels
from gleak.studies.figure_spec import FigureData, Shown
from tests.score_tables import MakeCell, Scored, ShowCell, make_figure

CONVERGED = (True, False, True)
TILE = [float(MISSING[colour]) for colour in ("facecolor", "edgecolor")]


def make(**fields: Any) -> Any:
    return make_figure("images", grid="attacks", **fields)


@pytest.fixture
def material(names: AxisLabels, nothing_published: pd.DataFrame) -> Callable[..., FigureData]:
    return lambda *cells: FigureData(pd.DataFrame(), nothing_published, names, cells)


def results(names: AxisLabels, *cells: Shown) -> list[TileRow]:
    figure = make(layout="results", victims=2, samples=2)
    return lay_out_results([strip for cell in cells for strip in read_strips(figure, cell)], names)


def test_victims_without_snapshots_have_gaps_and_no_error(
    shown: ShowCell, material: Callable[..., FigureData], tmp_path: Path
):
    make().draw(material(shown()), tmp_path / "images")
    table = pd.read_csv(tmp_path / "images.csv")
    assert table["mse"].isna().groupby(table["victim"]).sum().to_dict() == {0: 0, 1: 0, 2: 5}
    assert table.loc[table["step"] == "result", "iteration"].tolist() == [7, 8, 9]


@pytest.mark.parametrize("layout", ["search", "results"])
def test_what_was_not_found_has_a_hatched_tile(
    shown: ShowCell, material: Callable[..., FigureData], tmp_path: Path, layout: str
):
    cell = shown(snapshots=False)
    found = Reconstruction.read(cell.reconstruction)
    shares = []
    for behind in (1, 0):
        counts = np.full(found.labels.shape, behind)
        replace(found, averaged_count=counts).write(cell.reconstruction)
        make(layout=layout).draw(material(cell), tmp_path / "images")
        with Image.open(tmp_path / "images.png") as picture:
            greys = np.asarray(picture.convert("L")) / 255
        shares.append([(abs(greys - level) < 0.01).mean() for level in TILE])
    (face, hatch), (face_of_tiles, hatch_of_tiles) = shares
    assert face_of_tiles > face + 0.05
    assert hatch_of_tiles > hatch + 0.01


def test_texts_of_what_was_not_found(shown: ShowCell, names: AxisLabels):
    cell = shown(converged=CONVERGED)
    found = Reconstruction.read(cell.reconstruction)
    behind = np.array([[1, 1], [0, 0], [0, 0]])
    replace(found, averaged_count=behind).write(cell.reconstruction)
    lines = lay_out_search(read_strips(make(), cell), names)
    texts = ["MSE 0.01", "not found\nnot converged", "not found"]
    assert [line.tiles[-1].below for line in lines] == texts
    assert not any("converged" in tile.below for line in lines for tile in line.tiles[:-1])
    assert [line.tiles[1] is EMPTY for line in lines] == [False, True, True]


def test_results_of_searches_stand_below_each_other(shown: ShowCell, names: AxisLabels):
    cells = [shown(), shown(snapshots=False, attack="dlg")]
    strips = [strip for cell in cells for strip in read_strips(make(victims=1), cell)]
    long, short = lay_out_search(strips, names)
    assert [tile.above for tile in long.tiles][-2:] == ["iteration 40", "result (7)"]
    assert [tile.above for tile in short.tiles] == ["truth", *[""] * 5, "result"]
    assert (long.label, short.label) == ("CPL\nvictim 0", "dlg\nvictim 0")


def test_cells_of_the_same_samples_share_the_line_of_the_truth(shown: ShowCell, names: AxisLabels):
    cells = [
        shown(seed=seed, dataset=dataset, defense=defense)
        for seed, dataset in ((0, "photos"), (1, "digits"))
        for defense in ("none", "gaussian")
    ]
    lines = results(names, *cells)
    attacked = ["none", "Gaussian (std=0.01)"]
    wanted = ["photos (for CIFAR-10)\ntruth", *attacked, "digits\ntruth", *attacked]
    assert [line.label for line in lines] == wanted
    assert {len(line.tiles) for line in lines} == {4}


def test_every_result_stands_below_its_own_truth(shown: ShowCell, names: AxisLabels):
    truth, result = results(names, shown())
    assert (truth.label, result.label) == ("truth", "result")
    for above, below in zip(truth.tiles, result.tiles, strict=True):
        assert above.pixels is not None and below.pixels is not None
        np.testing.assert_allclose(below.pixels, above.pixels + 0.1, atol=1e-6)
        assert (above.below, below.below) == ("", "MSE 0.01")


def test_a_crafting_that_advances_with_the_attack_is_named_by_it(
    shown: ShowCell, names: AxisLabels
):
    pairs = [("honest", "dlg"), ("honest", "invertgrad"), ("fishing", "fishing")]
    cells = [shown(crafting=crafting, attack=attack) for crafting, attack in pairs]
    values = {"crafting": ("honest", "fishing"), "attack": ("dlg", "invertgrad", "fishing")}
    zipped = AxisLabels.read({**names.values, **values}, zipped=[["crafting", "attack"]])
    labels = [line.label for line in results(zipped, *cells)]
    assert labels == ["truth", "dlg", "invertgrad", "fishing"]
    apart = [line.label for line in results(replace(zipped, zipped=()), *cells)]
    assert apart[1:] == ["honest\ndlg", "honest\ninvertgrad", "fishing\nfishing"]


def test_cells_of_other_samples_have_truths_of_their_own(shown: ShowCell, names: AxisLabels):
    cells = [shown(seed=seed, attack=attack) for seed, attack in enumerate(("cpl", "dlg"))]
    labels = [line.label for line in results(names, *cells)]
    assert labels == ["CPL\ntruth", "result", "dlg\ntruth", "result"]


@pytest.mark.parametrize("fields", [{"victims": 1}, {"layout": "results"}])
def test_grey_images_stay_grey(
    shown: ShowCell, material: Callable[..., FigureData], tmp_path: Path, fields: dict[str, Any]
):
    cells = [shown(channels=1), shown(channels=1, snapshots=False, attack="dlg")]
    make(**fields).draw(material(*cells), tmp_path / "images")
    with Image.open(tmp_path / "images.png") as picture:
        pixels = np.asarray(picture.convert("RGB"), dtype=int)
    assert (pixels.max(axis=2) - pixels.min(axis=2)).max() == 0
    assert pixels.std() > 10


def test_the_best_and_the_worst_of_each_batch_stand_with_their_similarity(
    shown: ShowCell,
    scored: Scored,
    material: Callable[..., FigureData],
    names: AxisLabels,
    tmp_path: Path,
):
    figure = make(layout="results", victims=2, pick="both", metric="ssim")
    scores = scored("ssim", [[0.25, 0.75], [0.5, 0.125]])
    figure.draw(replace(material(cell := shown()), scores=scores), tmp_path / "images")
    table = pd.read_csv(tmp_path / "images.csv").query("step == 'result'")
    assert table["sample"].tolist() == [1, 0, 0, 1]
    assert table["place"].tolist() == ["best", "worst"] * 2
    assert table["value"].tolist() == [0.75, 0.25, 0.5, 0.125]
    strips = read_strips(figure, cell, read_values(figure, cell, scores))
    truth, found = lay_out_results(strips, names)
    assert [tile.above for tile in truth.tiles] == ["best", "worst"] * 2
    assert [tile.below for tile in found.tiles][:2] == ["ssim 0.75", "ssim 0.25"]
    (unscored, *_) = lay_out_results(read_strips(figure, cell), names)[1].tiles
    assert unscored.below == "MSE 0.01"


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"metric": "ssim"}, "layout search shows the MSE of snapshots"),
        ({"layout": "results", "metric": "iterations"}, "'iterations' is not of single samples"),
        ({"layout": "results", "snapshots": 2}, "layout results shows no snapshots"),
    ],
)
def test_what_cannot_stand_under_an_image(
    names: AxisLabels, cell: MakeCell, fields: dict[str, Any], fault: str
):
    with pytest.raises(SpecError, match=fault):
        make(**fields).check(names, [cell()])


def test_rows_of_many_samples_are_continued_below_with_the_same_columns():
    def tiles(count: int) -> list[Tile]:
        return [Tile(None, below=str(number)) for number in range(count)]

    rows = [TileRow("truth", tiles(MOST_COLUMNS + 3)), TileRow("result", tiles(MOST_COLUMNS + 3))]
    found = wrapped([*rows, TileRow("refused", [EMPTY])])
    assert [(row.label, len(row.tiles)) for row in found] == [
        ("truth", MOST_COLUMNS),
        ("result", MOST_COLUMNS),
        ("refused", 1),
        ("truth", 3),
        ("result", 3),
    ]
    assert found[4].tiles == rows[1].tiles[MOST_COLUMNS:]
    assert wrapped(found[3:]) == found[3:]
