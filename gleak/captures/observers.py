"""Observers of a round's states, for the rounds of any framework."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from typing_extensions import override

from gleak.artifacts.atomic import whole_folder
from gleak.captures.round_folder import ROUND, Arrays, RoundFolder
from gleak.core.errors import DataError, ExposedError, SpecError, nearest

Truth = tuple[Any, Any]
"""Inputs with values in [0, 1], Shape (N, *shape), and labels, Shape (N)."""
Measure = Callable[[Arrays, Arrays, Truth | None], dict[str, float]]
"""Function from states before and after training, and the truth if it is known, to metrics."""
ALARMS, EXPLAINED = "gleak-alarms", "gleak-explained"
LABELS, RECOVERED = "gleak-labels", "gleak-recovered"
"""Metrics of a `gleak.Gauge`; these two need the truth."""


def metrics_of_gauge(knows_truth: bool) -> tuple[str, ...]:
    """Return the names of what a `gleak.Gauge` measures, with or without the truth."""
    return (ALARMS, EXPLAINED, *((LABELS, RECOVERED) if knows_truth else ()))


class Observer(ABC):
    """Base of what is done with a round, which does not change it."""

    @abstractmethod
    def observes(self, number: int) -> bool:
        """Return True if a round is observed."""

    @abstractmethod
    def observe(self, number: int, before: Arrays, after: Mapping[str, Arrays]) -> dict[str, float]:
        """Observe a round.

        Args:
            number: number of the round.
            before: arrays that were broadcast.
            after: arrays returned by each client, by the name of the client.

        Returns:
            Metrics to add to those of the round.
        """


class Recorder(Observer):
    """Writer of captured rounds.

    Args:
        folder: contains a folder for each round.
        rounds: numbers of the rounds to capture; Flower counts from 1.

    Raises:
        DataError: the folder of a round already exists.
    """

    def __init__(self, folder: Path | str, rounds: Collection[int]) -> None:
        self.folder, self.rounds = Path(folder), rounds
        for path in map(self.of_round, rounds):
            if path.exists():
                raise DataError(f"{path} already exists; choose another folder, or remove it")

    def of_round(self, number: int) -> Path:
        """Return the folder of a round."""
        return self.folder / f"{ROUND}{number}"

    @override
    def observes(self, number: int) -> bool:
        return number in self.rounds

    @override
    def observe(self, number: int, before: Arrays, after: Mapping[str, Arrays]) -> dict[str, float]:
        """Write a round atomically.

        Raises:
            ArtifactError: no permission or no space.
        """
        with whole_folder(self.of_round(number)) as folder:
            files = RoundFolder(folder)
            save_file(before, files.before)
            for client, arrays in after.items():
                save_file(arrays, files.client(client))
        return {}


class Gauged(Observer):
    """Measurement of what a server, which knows no true samples, can find in every round.

    Args:
        measure: such as a `gleak.Gauge` for the clients' model and training.
        limits: largest accepted value by metric; the others have none.
        clients: number of clients that are measured in a round, the first to answer.
    """

    def __init__(self, measure: Measure, limits: Mapping[str, float] | None, clients: int) -> None:
        self.measure, self.limits, self.clients = measure, limits or {}, clients

    @override
    def observes(self, number: int) -> bool:
        return True

    @override
    def observe(self, number: int, before: Arrays, after: Mapping[str, Arrays]) -> dict[str, float]:
        """Measure the first clients; give the largest value of each metric.

        Raises:
            ExposedError: a metric exceeds its limit; names the round.
        """
        first = [*after.values()][: self.clients]
        measured = [self.measure(before, state, None) for state in first]
        if not measured:
            return {}
        largest = {name: max(each[name] for each in measured) for name in measured[0]}
        if over := over_limits(largest, self.limits):
            raise ExposedError(f"round {number}: {over}; the federation is stopped")
        return largest


def over_limits(measured: Mapping[str, float], limits: Mapping[str, float]) -> str:
    """Return which metrics exceed their limits, as a clause; empty if none does.

    Raises:
        SpecError: a limit is for a metric that is not measured.
    """
    for name in limits:
        if name not in measured:
            raise SpecError(f"limits: no metric {name!r} is measured; {nearest(name, measured)}")
    over = {name: value for name, value in measured.items() if value > limits.get(name, np.inf)}
    return ", ".join(f"{name} is {over[name]:.3g}, limit {limits[name]:.3g}" for name in over)
