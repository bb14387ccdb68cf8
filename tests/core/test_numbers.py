from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gleak.core.numbers import DASH, format_number


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (math.nan, DASH),
        (0.0, "0"),
        (1.0, "1"),
        (0.9985, "0.9985"),
        (28.3, "28.3"),
        (6725.0, "6725"),
        (12345.6, "12346"),
        (100.0, "100"),
        (2.2e-4, "2.2e-4"),
        (-1.55e-5, "-1.6e-5"),
        (3e7, "3.0e7"),
    ],
)
def test_numbers_are_short_and_exact_enough(value: float, text: str):
    assert format_number(value) == text


@given(st.floats(min_value=1e-300, max_value=1e300))
def test_text_reads_back_within_its_digits(value: float):
    assert float(format_number(value)) == pytest.approx(value, rel=0.051)
