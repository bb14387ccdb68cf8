from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gleak.artifacts.private import Private
from gleak.artifacts.reconstruction import Reconstruction
from gleak.core.errors import IncompatibleError
from gleak.core.registry import find
from gleak.core.spec import build_spec
from gleak.experiments.figure_spec import Shown
from gleak.figures.strips import read_strips, tabulate_strips


def make(**fields: Any) -> Any:
    return build_spec(find("figure", "images"), {"grid": "attacks", **fields})


def test_strips_hold_truth_start_snapshots_and_result(shown: Callable[..., Shown]):
    strips = read_strips(make(victims=2, samples=2, snapshots=2), shown())
    assert [(strip.victim, strip.sample) for strip in strips] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert [(p.step, p.iteration) for p in strips[2].pictures] == [
        ("truth", None),
        ("start", 0),
        ("snapshot", 5),
        ("snapshot", 40),
        ("result", 8),
    ]


def test_results_are_shown_without_their_search(shown: Callable[..., Shown]):
    strips = read_strips(make(layout="results"), shown())
    assert {tuple(p.step for p in strip.pictures) for strip in strips} == {("truth", "result")}


def test_samples_are_matched_to_the_truth(shown: Callable[..., Shown]):
    for strip in read_strips(make(samples=2), shown()):
        assert strip.pictures[-1].mse == pytest.approx(0.01, rel=1e-5)


def test_the_last_snapshot_follows_its_own_sample(shown: Callable[..., Shown]):
    strip = read_strips(make(samples=2, snapshots=4), shown())[1]
    result, last = strip.pictures[-1], strip.pictures[-2]
    assert result.pixels is not None and last.pixels is not None
    np.testing.assert_array_equal(result.pixels, last.pixels)


def test_a_sample_that_nothing_is_left_for_has_no_result(shown: Callable[..., Shown]):
    cell = shown(snapshots=False)
    found = Reconstruction.read(cell.reconstruction)
    replace(found, inputs=found.inputs[:, :1], labels=found.labels[:, :1]).write(
        cell.reconstruction
    )
    strips = read_strips(make(samples=2), cell)
    results = [strip.pictures[-1] for strip in strips if strip.victim == 0]
    assert [result.pixels is None for result in results] == [True, False]
    assert np.isnan(results[0].mse)


def test_a_sample_that_was_not_found_has_no_result(shown: Callable[..., Shown]):
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


def test_samples_of_known_labels_are_matched_by_them(shown: Callable[..., Shown]):
    cell = shown(snapshots=False)
    private, found = Private.read(cell.private), Reconstruction.read(cell.reconstruction)
    labels = np.array([[3, 5]] * 3)
    replace(private, labels=labels).write(cell.private)
    replace(found, labels=labels, paired=True).write(cell.reconstruction)
    for strip in read_strips(make(samples=2), cell):
        pixels = strip.pictures[-1].pixels
        assert pixels is not None
        np.testing.assert_array_equal(pixels, found.inputs[strip.victim, strip.sample])


def test_attacks_without_snapshots_show_truth_and_result(shown: Callable[..., Shown]):
    strips = read_strips(make(), shown(snapshots=False))
    assert {tuple(p.step for p in strip.pictures) for strip in strips} == {("truth", "result")}


def test_the_table_says_which_victims_converged(shown: Callable[..., Shown]):
    table = tabulate_strips(read_strips(make(), shown(converged=(True, False, True))))
    assert table.groupby("victim")["converged"].agg(["all", "any"]).to_numpy().tolist() == [
        [True, True],
        [False, False],
        [True, True],
    ]


def test_tables_have_no_images(shown: Callable[..., Shown], tmp_path: Path):
    good = shown()
    private = Private.read(good.private)
    flat = private.inputs.reshape(*private.labels.shape, -1)
    Private(inputs=flat, labels=private.labels, indices=private.indices, modality="tabular").write(
        tmp_path / "private.h5"
    )
    with pytest.raises(IncompatibleError, match="holds tabular data"):
        read_strips(make(), Shown(good.row, good.reconstruction, tmp_path / "private.h5"))
