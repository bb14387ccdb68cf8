from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gleak.artifacts.private import Private
from gleak.artifacts.reconstruction import Reconstruction
from gleak.core.errors import IncompatibleError
from gleak.figures.kinds.samples import pick, read_strips, read_values, tabulate_strips
from gleak.studies.figure_spec import Shown
from tests.score_tables import Scored, ShowCell, make_figure


def make(**fields: Any) -> Any:
    return make_figure("images", grid="attacks", **fields)


def test_strips_hold_truth_start_snapshots_and_result(shown: ShowCell):
    strips = read_strips(make(victims=2, samples=2, snapshots=2), shown())
    assert [(strip.victim, strip.sample) for strip in strips] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert [(p.step, p.iteration) for p in strips[2].pictures] == [
        ("truth", None),
        ("start", 0),
        ("snapshot", 5),
        ("snapshot", 40),
        ("result", 8),
    ]


@pytest.mark.parametrize(("layout", "snapshots"), [("results", True), ("search", False)])
def test_results_are_shown_without_their_search(shown: ShowCell, layout: str, snapshots: bool):
    strips = read_strips(make(layout=layout), shown(snapshots=snapshots))
    assert {tuple(p.step for p in strip.pictures) for strip in strips} == {("truth", "result")}


def test_samples_are_matched_to_the_truth(shown: ShowCell):
    for strip in read_strips(make(samples=2), shown()):
        assert strip.pictures[-1].mse == pytest.approx(0.01, rel=1e-5)


def test_the_last_snapshot_follows_its_own_sample(shown: ShowCell):
    strip = read_strips(make(samples=2, snapshots=4), shown())[1]
    result, last = strip.pictures[-1], strip.pictures[-2]
    assert result.pixels is not None and last.pixels is not None
    np.testing.assert_array_equal(result.pixels, last.pixels)


def test_a_sample_that_nothing_is_left_for_has_no_result(shown: ShowCell):
    cell = shown(snapshots=False)
    found = Reconstruction.read(cell.reconstruction)
    replace(found, inputs=found.inputs[:, :1], labels=found.labels[:, :1]).write(
        cell.reconstruction
    )
    strips = read_strips(make(samples=2), cell)
    results = [strip.pictures[-1] for strip in strips if strip.victim == 0]
    assert [result.pixels is None for result in results] == [True, False]
    assert np.isnan(results[0].mse)


def test_a_sample_that_was_not_found_has_no_result(shown: ShowCell):
    """Samples stand in the other order than the truth; mid-grey is no image of either."""
    cell = shown(snapshots=False)
    found = Reconstruction.read(cell.reconstruction)
    inputs = found.inputs.copy()
    inputs[0, 1] = 0.5
    behind = np.array([[1, 0], [1, 1], [0, 0]])
    replace(found, inputs=inputs, averaged_count=behind).write(cell.reconstruction)
    results = [strip.pictures[-1] for strip in read_strips(make(samples=2, victims=3), cell)]
    assert [result.pixels is None for result in results] == [True, *[False] * 3, *[True] * 2]
    assert [result.mse for result in results[1:4]] == pytest.approx([0.01] * 3, rel=1e-5)


def test_samples_of_known_labels_are_matched_by_them(shown: ShowCell):
    cell = shown(snapshots=False)
    private, found = Private.read(cell.private), Reconstruction.read(cell.reconstruction)
    labels = np.array([[3, 5]] * 3)
    replace(private, labels=labels).write(cell.private)
    replace(found, labels=labels, paired=True).write(cell.reconstruction)
    for strip in read_strips(make(samples=2), cell):
        pixels = strip.pictures[-1].pixels
        assert pixels is not None
        np.testing.assert_array_equal(pixels, found.inputs[strip.victim, strip.sample])


def test_the_table_says_which_victims_converged(shown: ShowCell):
    table = tabulate_strips(
        read_strips(make(layout="results"), shown(converged=(True, False, True)))
    )
    assert table["converged"].tolist() == [True, True, False, False, True, True]


def test_tables_have_no_images(shown: ShowCell, tmp_path: Path):
    good = shown()
    private = Private.read(good.private)
    flat = private.inputs.reshape(*private.labels.shape, -1)
    Private(inputs=flat, labels=private.labels, indices=private.indices, modality="tabular").write(
        tmp_path / "private.h5"
    )
    with pytest.raises(IncompatibleError, match="holds tabular data"):
        read_strips(make(), Shown(good.cell, good.reconstruction, tmp_path / "private.h5"))


VALUES = {(0, 0): 0.3, (0, 1): 0.1, (0, 2): 0.4, (0, 3): 0.2, (1, 0): 0.9}


def make_results(**fields: Any) -> Any:
    return make(layout="results", **fields)


@pytest.mark.parametrize(
    ("fields", "samples"),
    [
        ({"samples": 2}, [0, 1]),
        ({"samples": 2, "pick": "best"}, [1, 3]),
        ({"samples": 2, "pick": "worst"}, [2, 0]),
        ({"samples": 1, "pick": "both"}, [1, 2]),
        ({"samples": 9, "pick": "both"}, [1, 3, 2, 0]),
        ({"samples": 1, "pick": "best", "metric": "ssim"}, [2]),
    ],
)
def test_samples_that_are_shown(fields: dict[str, Any], samples: list[int]):
    assert [sample for sample, _ in pick(make_results(**fields), VALUES, 0, 4)] == samples


def test_a_sample_without_a_value_is_worse_than_all_others():
    for metric in ("mse", "ssim"):
        figure = make_results(samples=4, pick="worst", metric=metric)
        values = {key: value for key, value in VALUES.items() if key != (0, 1)}
        assert pick(figure, values, 0, 4)[0][0] == 1


@given(st.lists(st.floats(0, 1), min_size=1, max_size=9), st.integers(1, 9))
def test_best_and_worst_are_told_apart_and_no_sample_stands_twice(
    values: list[float], samples: int
):
    found = {(0, sample): value for sample, value in enumerate(values)}
    picks = pick(make_results(samples=samples, pick="both"), found, 0, len(values))
    best, worst = (
        [found[0, sample] for sample, its in picks if its == place] for place in ("best", "worst")
    )
    assert len(best) == len(worst) > 0
    assert max(best) <= min(worst)
    assert len(values) == 1 or len({sample for sample, _ in picks}) == len(picks)


def test_values_are_those_of_the_cell_and_the_metric(shown: ShowCell, scored: Scored):
    tables = [
        scored("ssim", [[0.5, 0.25], [float("nan"), 1.0]]),
        scored("mse", [[7.0, 8.0]]),
        scored("ssim", [[9.0, 9.0]], attack="dlg"),
        scored("iterations", [4.0]),
    ]
    found = read_values(make_results(metric="ssim"), shown(), pd.concat(tables))
    assert found == {(0, 0): 0.5, (0, 1): 0.25, (1, 1): 1.0}
