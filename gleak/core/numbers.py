"""Formatting of numbers, short enough for tables and exact enough for comparisons."""

from __future__ import annotations

import math

DASH, REFUSED = "–", "n/a"
"""Replace a missing number, and a number of a refused cell."""
SMALL, LARGE = 1e-3, 1e6


def format_value(value: float, reason: str) -> str:
    """Format the number of a cell; ``n/a`` if the cell was refused for a reason."""
    return REFUSED if reason else format_number(value)


def format_number(value: float) -> str:
    """Format with four significant digits; two and an exponent below 0.001; a dash for NaN."""
    if math.isnan(value):
        return DASH
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    if value == 0:
        return "0"
    if not SMALL <= abs(value) < LARGE:
        mantissa, _, exponent = f"{value:.1e}".partition("e")
        return f"{mantissa}e{int(exponent)}"
    decimals = max(0, 3 - math.floor(math.log10(abs(value))))
    text = f"{value:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
