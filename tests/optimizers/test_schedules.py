"""Schedules of the learning rate, beside torch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.optim import lr_scheduler

from gleak.core.errors import SpecError
from gleak.core.registry import load, parse
from gleak.optimizers.schedules import Listed

STEPS = 7
THEIRS: dict[str, Callable[[Any], Any]] = {
    "constant": lambda given: lr_scheduler.ConstantLR(given, factor=1),
    "linear+end=0.25": lambda given: lr_scheduler.LinearLR(given, 1.0, 0.25, total_iters=STEPS),
    "linear+over=3": lambda given: lr_scheduler.LinearLR(given, 1.0, 0.0, total_iters=3),
    "cosine": lambda given: lr_scheduler.CosineAnnealingLR(given, T_max=STEPS),
    "cosine+end=0.5": lambda given: lr_scheduler.CosineAnnealingLR(given, STEPS, eta_min=0.5),
    "step+every=3+factor=0.5": lambda given: lr_scheduler.StepLR(given, 3, gamma=0.5),
    "step+factor=0.9": lambda given: lr_scheduler.ExponentialLR(given, gamma=0.9),
}


@pytest.mark.parametrize("text", THEIRS)
def test_factors_are_those_of_torch(text: str) -> None:
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    scheduler = THEIRS[text](optimizer)
    rates = []
    for _ in range(STEPS):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    assert parse("schedule", text).factors(STEPS) == pytest.approx(rates)


def test_every_schedule_is_compared() -> None:
    compared = {text.partition("+")[0] for text in THEIRS}
    assert {*load("schedule")} == compared | {"listed"}


def test_listed_factors_are_read_back() -> None:
    factors = [1.0, 1.0, 0.5, 1 / 3, 1e-5, 1e-5]
    schedule = parse("schedule", str(Listed.of(factors)))
    assert schedule.factors(6) == pytest.approx(factors)
    with pytest.raises(ValueError, match="has 6 factors, not 5"):
        schedule.factors(5)


@pytest.mark.parametrize("values", ["1_x", "-1", "nan", "1x2x3", "0_0", "1x9999999999"])
def test_lists_of_anything_else_are_refused(values: str) -> None:
    with pytest.raises(SpecError, match="expected"):
        parse("schedule", f"listed+values={values}")
