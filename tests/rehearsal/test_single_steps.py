"""A rehearsal takes one step of every loop."""

from __future__ import annotations

import pytest

from gleak.rehearsal.single_steps import SingleSteps
from gleak.runtime.checkpointing import Journal


@pytest.mark.parametrize("left", [0, 5])
def test_there_is_one_step_whatever_is_left(left: int) -> None:
    part = SingleSteps().part().part("nested")
    with part.stepping():
        assert len([*part.steps(lambda: left > 0, dict)]) == 1


def test_other_journals_take_all_steps() -> None:
    left = iter([True, True, False])
    assert len([*Journal().part().steps(lambda: next(left), dict)]) == 2


def test_nothing_is_kept() -> None:
    part = SingleSteps().part()
    part.keep({"points": 1})
    assert part.stored == {}
