"""What is done with a round does not end it, whatever clients send."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file
from torch import nn

import gleak
from gleak.captures.frameworks import observers
from gleak.captures.frameworks.observers import AGE, OVERHEAD, Gauged, Recorder, TimeSpent
from gleak.captures.round_folder import Arrays
from gleak.core.errors import ArtifactError, ExposedError, SpecError

BEFORE: Arrays = {"weight": np.zeros((2, 3), np.float32), "count": np.array(3)}


def sent(value: float) -> Callable[[], Arrays]:
    return lambda: {"weight": np.full((2, 3), value, np.float32), "count": np.array(4)}


def malformed() -> Arrays:
    raise KeyError("no such record")


def size(before: Arrays, after: Arrays, _: object) -> dict[str, float]:
    """A measure that refuses what is not finite, as a gauge does."""
    change = after["weight"] - before["weight"]
    if not np.isfinite(change).all():
        raise ArtifactError("update: weight contains values that are NaN or infinite")
    return {"size": np.abs(change).max()}


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (sent(math.nan), "weight contains values that are NaN or infinite; the training goes on"),
        (malformed, "unexpected error; the training goes on\nTraceback"),
        (lambda: {"other": np.zeros(1)}, "KeyError: 'weight'"),
    ],
    ids=["NaN", "malformed", "of another model"],
)
def test_a_client_that_cannot_be_measured_is_named_and_the_others_count(
    answer: Callable[[], Arrays], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    answers = {"3": sent(1), "7": answer, "8": sent(2)}
    observer = Gauged(size, limits={"size": 5}, clients=3)
    assert observer.observe(4, BEFORE, answers) == {"size": 2}
    assert "round 4, client 7 is not observed: " in caplog.text
    assert reason in caplog.text
    alone = observer.observe(5, BEFORE, {"7": answer})
    assert alone == pytest.approx({"size": math.nan}, nan_ok=True)
    with pytest.raises(ExposedError, match="round 6: size is 9, limit 5"):
        observer.observe(6, BEFORE, {"7": answer, "8": sent(9)})


def test_a_client_that_cannot_be_measured_takes_no_others_place() -> None:
    answers = {"3": malformed, "7": sent(math.nan), "8": sent(9), "9": sent(99)}
    with pytest.raises(ExposedError, match="round 1: size is 9, limit 5"):
        Gauged(size, limits={"size": 5}, clients=1).observe(1, BEFORE, answers)


def test_clients_may_have_different_metrics() -> None:
    def named(_: Arrays, after: Arrays, __: object) -> dict[str, float]:
        value = float(after["weight"][0, 0])
        return {f"size-{value:g}": value}

    observer = Gauged(named, limits={"size-2": 5}, clients=2)
    assert observer.observe(1, BEFORE, {"3": sent(1), "7": sent(2)}) == {"size-1": 1, "size-2": 2}
    alone = observer.observe(2, BEFORE, {"3": sent(1)})
    assert alone == pytest.approx({"size-1": 1, "size-2": math.nan}, nan_ok=True)


def test_what_a_gauge_cannot_measure_has_its_names() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(3, 2))
    gauge = gleak.Gauge(model, shape=(3,), batch_size=1, local_lr=0.1)
    state = {name: value.numpy() for name, value in model.state_dict().items()}
    broken = {name: np.full_like(value, math.nan) for name, value in state.items()}
    found = Gauged(gauge, None, clients=1).observe(1, state, {"0": lambda: broken})
    assert tuple(found) == observers.metrics_of_gauge(knows_truth=False)
    assert all(map(math.isnan, found.values()))


def test_a_limit_of_nothing_is_told_and_what_is_not_known_is_not_within_its_limit() -> None:
    with pytest.raises(SpecError, match="no metric 'sise' is measured; did you mean 'size'"):
        Gauged(size, {"sise": 1}, clients=1).observe(1, BEFORE, {"0": sent(0)})
    measured = {"size": 2.0, "age": math.nan, "free": math.nan}
    assert observers.over_limits(measured, {"size": 2, "age": 9}) == "age is nan, limit 9"


def test_a_client_that_cannot_be_captured_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    answers = {"a": sent(1), "b": malformed, "../c": sent(3)}
    assert Recorder(tmp_path, [2]).observe(2, BEFORE, answers) == {}
    assert "round 2, client b is not observed" in caplog.text
    assert "client '../c': give a name of at most 100 characters" in caplog.text
    files = sorted(tmp_path.rglob("*.safetensors"))
    assert [path.name for path in files] == ["before.safetensors", "client-a.safetensors"]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    for path, state in zip(files, (BEFORE, sent(1)()), strict=True):
        found = load_file(path)
        assert all(np.array_equal(found[name], value) for name, value in state.items())


def test_a_round_that_cannot_be_written_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    observer = Recorder(tmp_path / "file", [1])
    (tmp_path / "file").touch()
    assert observer.observe(1, BEFORE, {"a": sent(1)}) == {}
    assert "round 1 is not observed" in caplog.text
    assert "could not be written" in caplog.text


@pytest.mark.parametrize("wanted", [KeyboardInterrupt, SystemExit])
def test_who_ends_a_training_on_purpose_is_heard(wanted: type[BaseException]) -> None:
    with pytest.raises(wanted), observers.unharmed("round 1"):
        raise wanted


SECONDS = st.floats(0.01, 100)


def go_on(spent: TimeSpent, share: float, training: float, measuring: float) -> TimeSpent:
    """Another round, measured if the share allows it."""
    if spent.affords(share):
        return spent.with_measured_round(training, measuring)
    return spent.with_other_round(training, 0)


@pytest.mark.parametrize("expected", [True, False])
@given(SECONDS, st.lists(SECONDS, min_size=1, max_size=60), st.floats(0.01, 2))
def test_no_measurement_but_an_unexpected_first_exceeds_the_share(
    expected: bool, measuring: float, rounds: list[float], share: float
) -> None:
    spent = TimeSpent(last=measuring)
    if not expected:
        spent = TimeSpent().with_measured_round(rounds.pop(), measuring)
    for training in rounds:
        spent = go_on(spent, share, training, measuring)
        if not spent.age:
            assert spent.measuring <= share * spent.training * (1 + 1e-9)


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
    longer = TimeSpent(training=100.0, measuring=1.0, last=1.0).with_measured_round(0.0, 9.0)
    waiting = longer.with_other_round(279.0, 0)
    assert not waiting.affords(0.05)
    assert waiting.with_other_round(1.0, 0).affords(0.05)


def test_the_first_round_is_measured_and_says_what_it_took() -> None:
    assert TimeSpent().affords(0.01)
    assert TimeSpent().with_measured_round(2.0, 14.0).metrics == {AGE: 0, OVERHEAD: 7.0}
    assert TimeSpent().with_measured_round(0.0, 1.0).metrics[OVERHEAD] == math.inf


def test_before_the_first_measurement_its_age_is_unknown() -> None:
    waiting = TimeSpent(last=1.0).with_other_round(2.0, 0)
    assert waiting.metrics == pytest.approx({AGE: math.nan, OVERHEAD: 0}, nan_ok=True)
    assert waiting.with_measured_round(2.0, 1.0).metrics[AGE] == 0


def test_the_time_of_other_rounds_counts() -> None:
    spent = TimeSpent(training=100.0, measuring=1.0, last=4.0)
    assert spent.affords(0.05)
    later = spent.with_other_round(1.0, 0.1)
    assert not later.affords(0.05)
    assert later.metrics[OVERHEAD] == pytest.approx(1.1 / 101)
