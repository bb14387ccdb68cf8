from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

from gleak.figures.canvas.forest import Comparison, draw_forest, split

ONE = Comparison(
    "CPL is better than DLG", "CPL − DLG", "PSNR (dB)", "holds", True, 5, (4, 6), 7, (0, math.inf)
)


def test_units_and_magnitudes_have_panels_of_their_own():
    small = replace(ONE, claim="small", ours=0.05, interval=(0.04, 0.06), paper=math.nan)
    rate = replace(ONE, unit="success rate")
    again = replace(ONE, label="another")
    assert split([ONE, small, rate, again]) == [[ONE, again], [small], [rate]]


def test_comparisons_of_one_claim_stay_together():
    small = replace(ONE, ours=0.05, interval=(0.04, 0.06), paper=math.nan)
    assert split([ONE, small]) == [[ONE, small]]


def test_zeros_are_one_panel():
    zero = replace(ONE, ours=0.0, interval=(0.0, 0.0), paper=0.0)
    assert split([zero, zero]) == [[zero, zero]]


def test_a_claim_is_written_once():
    assert ONE.lines(None) == (["CPL is better than DLG"], ["CPL − DLG"])
    assert ONE.lines(ONE) == ([], ["CPL − DLG"])


def test_a_picture_of_missing_and_infinite_values_is_drawn(tmp_path: Path):
    unknown = replace(
        ONE, ours=1, interval=(-math.inf, math.inf), paper=math.nan, label="", first=False
    )
    point = replace(unknown, unit="SSIM", interval=(1, 1), claimed=(1, 1), verdict="differs")
    draw_forest([ONE, unknown, point], tmp_path / "a")
    first = (tmp_path / "a.png").read_bytes()
    draw_forest([ONE, unknown, point], tmp_path / "a")
    assert (tmp_path / "a.png").read_bytes() == first
