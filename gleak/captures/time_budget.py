"""The time that a client spends on training and on measuring its updates."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

AGE, OVERHEAD = "gleak-age", "gleak-overhead"


@dataclass(frozen=True)
class TimeSpent:
    """Seconds of a client's rounds so far, of which some were measured.

    Args:
        training: of all rounds.
        measuring: of all measurements, and of the mod in other rounds.
        last: that the next measurement is expected to take, those of the last one; 0: unknown.
        age: number of rounds since the last measurement; NaN: there was none.
    """

    training: float = 0.0
    measuring: float = 0.0
    last: float = 0.0
    age: float = math.nan

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> TimeSpent:
        """Return what `record` wrote."""
        return cls(**record)

    @property
    def record(self) -> dict[str, float]:
        """All fields, to keep them between two rounds."""
        return asdict(self)

    @property
    def metrics(self) -> dict[str, float]:
        """The metrics of a round: age of its measurement, and measuring relative to training."""
        overhead = self.measuring / self.training if self.training else math.inf
        return {AGE: self.age, OVERHEAD: overhead}

    def affords(self, share: float) -> bool:
        """Return True if another measurement stays within a share of the training so far.

        A measurement is also made if nobody knows what it takes.
        """
        return not self.last or self.measuring + self.last <= share * self.training

    def with_measured_round(self, training: float, measuring: float) -> TimeSpent:
        """Return the time after another round, which was measured."""
        total = self.measuring + measuring
        return TimeSpent(self.training + training, total, last=measuring, age=0.0)

    def with_other_round(self, training: float, own: float) -> TimeSpent:
        """Return the time after another round, which was not measured but took its own time."""
        sums = {"training": self.training + training, "measuring": self.measuring + own}
        return replace(self, **sums, age=self.age + 1)
