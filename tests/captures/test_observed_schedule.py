"""Schedules as recognised from the rates of torch's schedulers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.optim import SGD, Optimizer
from torch.optim import lr_scheduler as schedulers

from gleak.captures.observed_schedule import schedule_of
from gleak.optimizers.schedules import Constant, Cosine, Linear, Schedule, Step

STEPS = 10
KNOWN: dict[str, Callable[[Optimizer], Any]] = {
    "constant": lambda o: schedulers.ConstantLR(o, 0.5, 100),
    "step+every=3+factor=0.5": lambda o: schedulers.StepLR(o, 3, 0.5),
    "step+factor=0.9": lambda o: schedulers.ExponentialLR(o, 0.9),
    "linear+end=0.2+over=5": lambda o: schedulers.LinearLR(o, 1, 0.2, 5),
    "linear+end=3+over=4": lambda o: schedulers.LinearLR(o, 1 / 3, 1, 4),
    "linear": lambda o: schedulers.LinearLR(o, 1, 0, STEPS),
    "cosine": lambda o: schedulers.CosineAnnealingLR(o, STEPS),
    "cosine+end=0.1+over=30": lambda o: schedulers.CosineAnnealingLR(o, 30, 0.01),
    "listed+values=1x2_0.1x3_0.01x5": lambda o: schedulers.MultiStepLR(o, [2, 5], 0.1),
    "listed+values=0_1x3_0.5x6": lambda o: schedulers.LambdaLR(
        o, lambda step: min(step, 1) if step < 4 else 0.5
    ),
    "any": lambda o: schedulers.OneCycleLR(o, 0.1, STEPS, cycle_momentum=False),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("text", KNOWN)
def test_rates_of_torch_are_given_by_a_schedule(text: str) -> None:
    optimizer = SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
    scheduler, rates = KNOWN[text](optimizer), []
    for _ in range(STEPS):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    reference, schedule = schedule_of(rates)
    assert text in ("any", str(schedule))
    given = [reference * factor for factor in schedule.factors(STEPS)]
    assert given == pytest.approx(rates, rel=1e-6)


def test_one_rate_is_constant() -> None:
    rate, schedule = schedule_of([0.3])
    assert (rate, str(schedule)) == (0.3, "constant")


def test_many_rates_without_a_name_are_compared_with_few_schedules(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a schedule that looks like a cosine at first; counted, not timed."""
    counted: list[str] = []

    def counting(kind: type[Schedule]) -> None:
        factors = kind.factors

        def count(self: Schedule, steps: int) -> list[float]:
            counted.append(kind.__name__)
            return factors(self, steps)

        monkeypatch.setattr(kind, "factors", count)

    for kind in (Constant, Cosine, Linear, Step):
        counting(kind)
    rates = [*Cosine(end=0.1, over=20_000).factors(4_999), 0.3]
    counted.clear()
    _, schedule = schedule_of(rates)
    assert schedule.name == "listed"
    assert len(counted) <= 6


@pytest.mark.parametrize("over", [3, 4, 59, 60])
def test_three_rates_of_a_longer_cosine_give_its_duration(over: int) -> None:
    for end in (0.0, 0.3):
        expected = Cosine(end=end, over=None if over == 3 else over)
        assert schedule_of(expected.factors(3)) == (1.0, expected)
