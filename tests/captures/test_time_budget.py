"""Which rounds a client measures, by the time that it has."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gleak.captures.time_budget import AGE, OVERHEAD, TimeSpent

SECONDS = st.floats(0.01, 100)


def go_on(spent: TimeSpent, share: float, training: float, measuring: float) -> TimeSpent:
    """Another round, measured if the share allows it."""
    if spent.affords(share):
        return spent.with_measured_round(training, measuring)
    return spent.with_other_round(training, 0)


@given(SECONDS, st.lists(SECONDS, min_size=1, max_size=60), st.floats(0.01, 2))
def test_no_measurement_but_the_first_exceeds_the_share(
    measuring: float, rounds: list[float], share: float
) -> None:
    spent = TimeSpent().with_measured_round(rounds[0], measuring)
    for training in rounds[1:]:
        after = go_on(spent, share, training, measuring)
        if not after.age:
            assert after.measuring <= share * after.training * (1 + 1e-9)
        spent = after


def test_a_share_is_used_up() -> None:
    """Measurements of seven rounds' time, a twentieth: every 140th round."""
    spent, measured = TimeSpent(), []
    for number in range(1, 1001):
        spent = go_on(spent, 0.05, training=1.0, measuring=7.0)
        if not spent.age:
            measured.append(number)
    assert measured == [1, 281, 421, 561, 701, 841, 981]
    assert spent.metrics == {AGE: 19, OVERHEAD: pytest.approx(0.049)}


def test_a_longer_measurement_is_paid_back_before_the_next() -> None:
    spent = TimeSpent(training=100.0, measuring=1.0, last=1.0)
    assert spent.affords(0.05)
    longer = spent.with_measured_round(0.0, 9.0)
    waiting = longer.with_other_round(279.0, 0)
    assert not waiting.affords(0.05)
    assert waiting.with_other_round(1.0, 0).affords(0.05)


def test_the_first_round_is_measured_and_says_what_it_took() -> None:
    assert TimeSpent().affords(0.01)
    assert TimeSpent().with_measured_round(2.0, 14.0).metrics == {AGE: 0, OVERHEAD: 7.0}
    assert TimeSpent().with_measured_round(0.0, 1.0).metrics[OVERHEAD] == math.inf


@given(SECONDS, st.lists(SECONDS, min_size=1, max_size=60), st.floats(0.01, 2))
def test_no_measurement_exceeds_the_share_if_the_first_takes_what_was_expected(
    measuring: float, rounds: list[float], share: float
) -> None:
    spent = TimeSpent(last=measuring)
    for training in rounds:
        spent = go_on(spent, share, training, measuring)
        assert spent.measuring <= share * spent.training * (1 + 1e-9)


def test_before_the_first_measurement_its_age_is_unknown() -> None:
    waiting = TimeSpent(last=1.0).with_other_round(2.0, 0)
    assert math.isnan(waiting.metrics[AGE])
    assert waiting.metrics[OVERHEAD] == 0
    assert waiting.with_measured_round(2.0, 1.0).metrics[AGE] == 0


def test_the_time_of_other_rounds_counts() -> None:
    spent = TimeSpent(training=100.0, measuring=1.0, last=4.0)
    assert spent.affords(0.05)
    later = spent.with_other_round(1.0, 0.1)
    assert not later.affords(0.05)
    assert later.metrics[OVERHEAD] == pytest.approx(1.1 / 101)


def test_the_record_restores_it() -> None:
    spent = TimeSpent(training=3.0, measuring=1.0, last=1.0, age=4)
    assert TimeSpent.of_record(spent.record) == spent
