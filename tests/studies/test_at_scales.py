"""Values at each scale."""

from __future__ import annotations

import pytest

from gleak.core.settings import SCALES
from gleak.studies.at_scales import AtScales, starting_with


def test_a_value_is_computed_once_and_when_it_is_used():
    computed = []
    lengths = AtScales(lambda scale: computed.append(scale) or len(scale))
    assert [lengths["paper"], lengths["paper"]] == [5, 5]
    assert computed == ["paper"]
    assert next(lengths.values_from(["quick"])) == 5
    assert computed == ["paper", "quick"]


def test_it_has_every_scale_and_no_other():
    lengths = AtScales(len)
    assert dict(lengths) == {scale: len(scale) for scale in SCALES}
    with pytest.raises(KeyError, match="large"):
        lengths["large"]


def test_scales_are_read_in_the_wanted_order():
    assert starting_with(["small"]) == ["small", "quick", "paper"]
