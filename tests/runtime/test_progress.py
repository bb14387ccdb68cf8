from __future__ import annotations

import io
import logging
import sys
from collections.abc import Iterator

import pytest

from gleak.runtime import progress
from gleak.runtime.progress import Progress


class Clock:
    """A clock that only moves when told to."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    return clock


def test_lines_come_at_most_every_ten_seconds_and_at_the_end(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with Progress(100, "cpl") as shown:
        for _ in range(100):
            clock.now += 0.25
            shown.advance(objective=0.123456)
    assert caplog.messages == [
        "cpl: 40/100, 10 s, about 15 s left, objective=0.1235",
        "cpl: 80/100, 20 s, about 5 s left, objective=0.1235",
        "cpl: 100/100, 25 s, objective=0.1235",
    ]


def test_work_that_breaks_off_says_how_far_it_came(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with Progress(0, "nothing"):
        pass
    with pytest.raises(KeyError), Progress(10, "cpl") as shown:
        shown.advance(5)
        clock.now = 3.0
        raise KeyError("work")
    assert caplog.messages == ["nothing: 0/0, 0 s", "cpl: 5/10, 3 s, about 3 s left"]


def test_a_terminal_gets_a_bar_and_no_lines(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with Progress(4, "cpl") as shown:
        shown.advance(3, objective=0.5)
        shown.advance(1, objective=0.25)
    assert caplog.messages == []
    assert "cpl: 100%" in terminal.getvalue()
    assert "4/4" in terminal.getvalue() and "objective=0.25" in terminal.getvalue()
