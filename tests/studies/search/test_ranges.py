from __future__ import annotations

import warnings
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gleak.core.errors import SpecError
from gleak.core.registry import parse
from gleak.studies.search.ranges import Choices, Interval, Range, WholeInterval, read_range

CPL = parse("attack", "cpl+alpha=0.5")
ENDS = st.floats(1e-6, 1e6)


def suggestions(found: Range, seed: int = 0, count: int = 20) -> list[Any]:
    """Return values that Optuna draws from one range."""
    import optuna

    optuna.logging.disable_default_handler()
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=seed))
    return [found.suggest(study.ask(), "field") for _ in range(count)]


@given(ENDS, ENDS, st.booleans(), st.integers(0, 99))
def test_numbers_stay_between_the_ends_and_are_short(
    first: float, second: float, log: bool, seed: int
):
    low, high = sorted((first, second))
    if not low < high:
        return
    for value in suggestions(Interval(low=low, high=high, log=log), seed, 5):
        assert low <= value <= high
        assert value in (low, high) or value == float(f"{value:.3g}")


def test_logarithmic_ranges_reach_small_numbers():
    small = {log: suggestions(Interval(low=1e-5, high=10, log=log)) for log in (True, False)}
    assert sum(value < 0.1 for value in small[True]) > sum(value < 0.1 for value in small[False])


def test_a_whole_field_gets_whole_numbers():
    found = read_range(CPL, "patience", {"low": 1, "high": 400})
    assert isinstance(found, WholeInterval)
    assert all(type(value) is int for value in suggestions(found))


def test_choices_are_canonical_and_may_be_specs():
    starts = ["patterned", "patterned~tiles=04", "dark"]
    found = read_range(CPL, "start", starts)
    assert found == Choices(texts=("patterned", "patterned~tiles=4", "dark"))
    assert set(suggestions(found)) == set(found.examples)
    assert read_range(CPL, "alpha", [1, "5e-1"]) == Choices(texts=("1", "0.5"))


@pytest.mark.parametrize(
    ("field", "written"),
    [
        ("alpha", {"low": 0, "high": "1e1"}),
        ("alpha", {"low": 1e-5, "high": 10, "log": True}),
        ("patience", {"low": 1, "high": 400}),
        ("alpha", [0, 0.5]),
        ("labels", ["known", "argmin"]),
    ],
)
def test_what_is_declared_reads_as_the_same_and_can_be_begun_with(field: str, written: Any):
    found = read_range(CPL, field, written)
    assert read_range(CPL, field, found.declared()) == found
    import optuna

    study = optuna.create_study()
    study.enqueue_trial({field: found.start(CPL, field)})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first = found.suggest(study.ask(), field)
    assert first == found.start(CPL, field)


@pytest.mark.parametrize(
    ("field", "written", "fault"),
    [
        ("alpha", {"low": -1, "high": 1}, "field 'alpha' = -1.0: .*greater than or equal to 0"),
        ("threshold", {"low": 0, "high": 1}, "field 'threshold' = 0.0: .*greater than 0"),
        ("patience", {"low": 0.5, "high": 500}, "low = 0.5: .*integer"),
        ("alpha", {"low": 1, "high": 1}, "low = 1 is not below high = 1"),
        ("alpha", {"low": 0, "high": 1, "log": True}, "a logarithmic range begins above 0"),
        ("alpha", {"low": 0}, "key 'high' is missing"),
        ("alpha", {"low": 0, "hihg": 1}, "key 'high' is missing; unknown key 'hihg'; did you mean"),
        ("alpha", {"low": 1, "high": 2}, "alpha = 0.5 is not from 1 to 2; widen the range or"),
        ("labels", {"low": 0, "high": 1}, "'argmin' of cpl.* is not a number; list choices"),
        ("labels", ["argmin", "agrmin"], "field 'labels' = 'agrmin'"),
        ("labels", ["known", "joint"], "labels = argmin is none of known, joint; add it"),
        ("start", ["patterned", "drak"], "unknown start 'drak'; did you mean 'dark'"),
        ("alpha", [0.5], "two or more different choices"),
        ("alpha", [0.5, "5e-1"], "two or more different choices"),
    ],
)
def test_faults_name_the_field(field: str, written: Any, fault: str):
    with pytest.raises(SpecError, match=f"ranges, field '{field}': .*{fault}"):
        read_range(CPL, field, written)
