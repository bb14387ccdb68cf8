"""The learning rates of `Adam`; its steps are tested beside torch's with the other optimisers'."""

from __future__ import annotations

import math

import pytest

from gleak.matching.optimizers.adam import Adam


def test_rates_follow_their_schedules() -> None:
    shares = [0, 0.374, 0.375, 0.624, 0.625, 0.874, 0.875, 1]
    steps = [Adam(lr=2, schedule="steps").rate(share) for share in shares]
    assert steps == pytest.approx([2, 2, 0.2, 0.2, 0.02, 0.02, 0.002, 0.002])
    cosine = Adam(lr=2, schedule="cosine").rate
    assert [cosine(0), cosine(0.25), cosine(1)] == pytest.approx([2, 1 + math.sqrt(0.5), 0])
    assert {Adam(lr=2).rate(share) for share in shares} == {2}
