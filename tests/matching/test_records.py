from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gleak.matching.records import RECORDS, SHOWN_VICTIMS, Records, snapshot_iterations


def test_snapshots_follow_the_series() -> None:
    assert snapshot_iterations(1) == [0, 1]
    assert snapshot_iterations(60) == [0, 1, 2, 5, 10, 20, 50]
    assert snapshot_iterations(1000)[-3:] == [200, 500, 1000]


@given(st.integers(1, 10**5))
def test_the_objective_is_kept_often_but_not_too_often(iterations: int) -> None:
    moments = Records((2, 1, 3), iterations).iterations
    assert moments[0] == 0
    assert min(iterations, RECORDS) / 2 <= len(moments) <= RECORDS + 1
    assert len(set(np.diff(moments))) <= 1


@given(st.integers(1, 300), st.integers(0, 400))
def test_what_is_missing_at_the_end_is_filled_with_what_was_seen_last(
    iterations: int, last: int
) -> None:
    records = Records((3, 1, 2), iterations)
    for iteration in range(min(last, iterations) + 1):
        if records.due(iteration):
            values = torch.full((3,), float(iteration))
            records.see(torch.arange(3), values, values[:, None, None].expand(3, 1, 2) / 1e3)
            records.record(iteration)
    records.record(iterations)
    seen = [moment for moment in sorted({*records.iterations, *records.moments}) if moment <= last]
    expected = [min(moment, seen[-1]) for moment in records.iterations]
    assert [float(values[1]) for values in records.objective] == expected
    shown = [min(moment, seen[-1]) / 1e3 for moment in records.moments]
    assert [float(picture[1, 0, 0]) for picture in records.pictures] == pytest.approx(shown)


def test_only_the_first_victims_are_shown_and_each_keeps_its_place() -> None:
    records = Records((9, 1, 1), 10)
    records.see(torch.tensor([2, 8]), torch.tensor([5.0, 7.0]), torch.tensor([[[0.5]], [[0.7]]]))
    records.record(0)
    assert records.pictures[0].shape == (SHOWN_VICTIMS, 1, 1)
    assert records.pictures[0].ravel().tolist() == [0, 0, 0.5, 0]
    assert records.objective[0][[2, 8]].tolist() == [5, 7]


def test_values_that_are_not_finite_leave_the_ones_before() -> None:
    records = Records((2, 1, 1), 10)
    points = torch.tensor([[[0.5]], [[0.25]]])
    records.see(torch.arange(2), torch.tensor([3.0, torch.nan]), points)
    records.see(torch.arange(2), torch.tensor([torch.inf, torch.nan]), points * torch.nan)
    records.record(0)
    assert records.objective[0][0] == 3
    assert records.objective[0][1] == np.finfo(np.float64).max, "no search begins at zero"
    assert np.isfinite(records.pictures[0]).all()


def test_pictures_are_images() -> None:
    records = Records((1, 1, 2), 10)
    records.see(torch.tensor([0]), torch.tensor([1.0]), torch.tensor([[[-3.0, 9.0]]]))
    records.record(0)
    assert records.pictures[0].ravel().tolist() == [0, 1]
