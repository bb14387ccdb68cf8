from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gleak.figures.canvas.panels import TOGETHER, Slots, with_name
from gleak.figures.canvas.style import PANEL


@given(st.integers(1, 5), st.integers(1, 6), st.sampled_from([0.6, 0.9]))
def test_bars_and_their_markers_do_not_touch_the_next(groups: int, hues: int, share: float):
    places = {str(x): float(x) for x in range(groups)}
    slots = Slots(places, {str(hue): (0.0, 0.0, 0.0) for hue in range(hues)}, share)
    keys = [(x, str(hue)) for x in places for hue in range(hues)]
    spans = [(slots.bar(*key) - slots.width / 2, slots.bar(*key) + slots.width / 2) for key in keys]
    edges = [
        edge
        for (low, high), key in zip(spans, keys, strict=True)
        for edge in (low, high, slots.marker(*key))
    ]
    assert all(left < right for left, right in pairwise(edges))
    assert edges[0] > -0.5 and edges[-1] < groups - 0.5


@given(st.integers(1, 6), st.floats(0.1, 1))
def test_a_bar_and_the_rest_fill_a_slot(hues: int, share: float):
    slots = Slots({"x": 0.0}, {str(hue): (0.0, 0.0, 0.0) for hue in range(hues)}, share)
    assert slots.width + slots.rest == pytest.approx(TOGETHER / hues)
    assert slots.marker("x", "0") - slots.bar("x", "0") == pytest.approx(TOGETHER / hues / 2)


def test_panels_grow_with_what_stands_in_them():
    colours = {str(hue): (0.0, 0.0, 0.0) for hue in range(5)}
    few, many = Slots({}, {"": (0.0, 0.0, 0.0)}, 0.9), Slots({}, colours, 0.9)
    assert few.inches(["1", "2"]) == PANEL[0]
    assert many.inches(["1", "2", "3"]) > PANEL[0]
    assert few.inches(["a longer line\nthan 1", "b", "c", "d"]) > PANEL[0]


@pytest.mark.parametrize(
    ("axis", "label", "title"),
    [
        ("client.batch_size", "4", "batch size 4"),
        ("defense.std", "1e-3", "std 1e-3"),
        ("dataset", "MNIST", "MNIST"),
    ],
)
def test_a_number_alone_is_no_title(axis: str, label: str, title: str) -> None:
    names = SimpleNamespace(labels={})
    assert with_name(axis, names, label) == title
