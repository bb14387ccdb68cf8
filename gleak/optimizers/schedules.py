"""Schedules of the learning rate over the local steps of one round."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import ClassVar, Self

from pydantic import model_validator

from gleak.core.registry import register
from gleak.core.spec import Spec, parameter

MOST = 100_000
"""Largest number of steps whose factors are listed."""


class Schedule(Spec):
    """Factors of the learning rate, one for each local step."""

    kind: ClassVar[str] = "schedule"

    @abstractmethod
    def factors(self, steps: int) -> list[float]:
        """Return the factors of the learning rate in a round of so many steps."""

    def check(self, steps: int) -> None:
        """Raise `ValueError` if the schedule is not of so many steps."""


@register("constant")
class Constant(Schedule):
    """The same learning rate in all steps."""

    def factors(self, steps: int) -> list[float]:
        return [1.0] * steps


@register("linear")
class Linear(Schedule):
    """Linear change from one to a last factor, reached after the round, or after some steps."""

    source = "torch.optim.lr_scheduler.LinearLR"

    end: float = parameter(0.0, "last factor", ge=0)
    over: int | None = parameter(None, "steps of the change; none: those of a round", ge=1)

    def factors(self, steps: int) -> list[float]:
        over = self.over or steps
        return [1 + (self.end - 1) * min(step / over, 1) for step in range(steps)]


@register("cosine")
class Cosine(Schedule):
    """Half a period of a cosine from one to a last factor, reached as in `Linear`."""

    source = "Loshchilov and Hutter 2017; torch.optim.lr_scheduler.CosineAnnealingLR"

    end: float = parameter(0.0, "last factor", ge=0)
    over: int | None = parameter(None, "steps of the change; none: those of a round", ge=1)

    def factors(self, steps: int) -> list[float]:
        over = self.over or steps
        turns = [math.pi * min(step / over, 1) for step in range(steps)]
        return [self.end + (1 - self.end) * (1 + math.cos(turn)) / 2 for turn in turns]


@register("step")
class Step(Schedule):
    """A factor after every so many steps; after every step it decays exponentially."""

    source = "torch.optim.lr_scheduler.StepLR"

    every: int = parameter(1, "steps between changes", ge=1)
    factor: float = parameter(0.1, "of each change", source="torch", gt=0, le=1)

    def factors(self, steps: int) -> list[float]:
        return [self.factor ** (step // self.every) for step in range(steps)]


@register("listed")
class Listed(Schedule):
    """Any factors, such as ``1x5_0.5_0.25``: five of 1, then one of 0.5 and one of 0.25."""

    values: str = parameter("1", "factors of all steps, equal ones in a row with their number")

    @model_validator(mode="after")
    def _check_values(self) -> Self:
        try:
            factors = self._factors()
        except ValueError:
            raise ValueError(
                f"values={self.values!r}: expected numbers, separated by '_', each with 'x' and "
                "the number of its steps if there are several, as in 1x5_0.5"
            ) from None
        if not all(0 <= factor < math.inf for factor in factors):
            raise ValueError(f"values={self.values!r}: expected finite numbers, none below zero")
        if not any(factors):
            raise ValueError(f"values={self.values!r}: expected one above zero, else nothing moves")
        return self

    @classmethod
    def of(cls, factors: list[float]) -> Self:
        """Return the schedule of these factors."""
        runs: list[tuple[float, int]] = []
        for factor in factors:
            count = 1
            if runs and runs[-1][0] == factor:
                count += runs.pop()[1]
            runs.append((factor, count))
        texts = [f"{factor:.12g}" + (f"x{count}" if count > 1 else "") for factor, count in runs]
        return cls(values="_".join(texts))

    def factors(self, steps: int) -> list[float]:
        self.check(steps)
        return self._factors()

    def check(self, steps: int) -> None:
        factors = self._factors()
        if len(factors) != steps:
            raise ValueError(f"schedule {self} has {len(factors)} factors, not {steps}")

    def _factors(self) -> list[float]:
        parts = [text.partition("x") for text in self.values.split("_")]
        runs = [(float(factor), int(count or 1)) for factor, _, count in parts]
        if sum(count for _, count in runs) > MOST:
            raise ValueError(f"more than {MOST} steps")
        return [factor for factor, count in runs for _ in range(count)]
