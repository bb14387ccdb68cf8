from __future__ import annotations

import pytest

from gleak.core.errors import IncompatibleError, SpecError
from gleak.studies.cell import LEVELS, Cell
from gleak.studies.refusals import (
    Refusal,
    check_left,
    levels_of,
    levels_of_truth,
    sift,
    unchecked,
)

PATH = "digits/lenet/untrained/honest/fedsgd/none/aono"
TEXTS = dict(zip(LEVELS, PATH.split("/"), strict=True))


def test_a_cell_can_be_told_whether_or_not_its_specs_fit() -> None:
    cell = unchecked(TEXTS)
    assert levels_of(cell) == TEXTS
    assert levels_of_truth(cell.upto("defense")) == {**TEXTS, "attack": "truth"}
    assert levels_of(cell.upto("training"))["client"] == ""
    with pytest.raises(IncompatibleError):
        cell.check()
    with pytest.raises(SpecError, match="did you mean 'lenet'"):
        unchecked({**TEXTS, "model": "lenett"})


def test_cells_that_do_not_pass_are_refused_with_the_reason() -> None:
    good, bad = unchecked({**TEXTS, "attack": "cpl"}), unchecked(TEXTS)
    kept, refused = sift([bad, good], levels_of, Cell.check)
    assert kept == [good]
    (refusal,) = refused
    assert refusal.row == {**TEXTS, "reason": refusal.reason}
    assert str(refusal) == f"{PATH}: {refusal.reason}"
    assert refusal.reason.startswith("attack aono needs a first layer that is dense")


def test_errors_that_are_not_about_fit_pass_through() -> None:
    long = unchecked({**TEXTS, "model": f"custom+factory={'m' * 200}.build"})
    with pytest.raises(SpecError, match="a cluster loses jobs"):
        sift([long], levels_of, Cell.check)


def test_where_controls_alone_are_left_there_is_nothing_to_compare() -> None:
    refused = [Refusal(TEXTS, "does not fit")]
    blind = unchecked({**TEXTS, "attack": "blind"})
    with pytest.raises(IncompatibleError, match="does not fit; so no cell is left"):
        check_left([blind], refused)
    check_left([blind], [])
    check_left([blind, unchecked({**TEXTS, "attack": "cpl"})], refused)
