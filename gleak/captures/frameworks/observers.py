"""Observers of a round's states, for the rounds of any framework.

Whatever goes wrong with an observation, such as an update that is not finite or a full disk, is
logged (see `unharmed`), and the training goes on.
"""

from __future__ import annotations

import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from gleak.artifacts.atomic import whole_folder
from gleak.captures.observed_training import ObservedTraining
from gleak.captures.round_folder import ROUND, Arrays, RoundFolder, write_state
from gleak.core.errors import DataError, ExposedError, GleakError, SpecError, nearest

Read = Callable[[], Arrays]
"""Function that reads the arrays of one client's answer, which may be malformed."""
Truth = tuple[Any, Any]
"""Inputs with values in [0, 1], Shape (N, *shape), and labels, Shape (N)."""
Measure = Callable[..., dict[str, float]]
"""Function from states before and after training, and the truth or None, to metrics.

Of a client that has other samples, too, these are a fourth argument, like the truth.
"""
Audit = Callable[[Arrays], Collection[str]]
"""Function from the state that was broadcast to what is suspicious of it."""
ALARMS, EXPLAINED = "gleak-alarms", "gleak-explained"
LABELS, RECOVERED = "gleak-labels", "gleak-recovered"
"""Metrics of a `gleak.Gauge`; these two need the truth."""
FOUND, AREA = "gleak-members", "gleak-auc"
"""Others, which need the truth and other samples of the client."""
AGE, OVERHEAD = "gleak-age", "gleak-overhead"
log = logging.getLogger(__name__)


def metrics_of_gauge(knows_truth: bool, knows_others: bool = False) -> tuple[str, ...]:
    """Return the names of what a `gleak.Gauge` measures, by what it is given besides."""
    known = (LABELS, RECOVERED) if knows_truth else ()
    return (ALARMS, EXPLAINED, *known, *((FOUND, AREA) if knows_others else ()))


def unknown(metrics: Iterable[str]) -> dict[str, float]:
    """Return metrics of what is not measured: NaN, by the names that strategies expect."""
    return dict.fromkeys(metrics, math.nan)


@contextmanager
def unharmed(subject: str) -> Iterator[None]:
    """Log what goes wrong in the block, in place of raising it, so that a training goes on.

    Errors that gleak raises on purpose are one line with the reason; others have their traceback.
    """
    try:
        yield
    except GleakError as error:
        log.warning("%s is not observed: %s; the training goes on", subject, error)
    except Exception:
        log.exception("%s is not observed: unexpected error; the training goes on", subject)


class Observer(ABC):
    """Base of what is done with a round, which neither changes nor ends it."""

    @abstractmethod
    def observes(self, number: int) -> bool:
        """Return True if a round is observed."""

    @abstractmethod
    def observe(self, number: int, before: Arrays, after: Mapping[str, Read]) -> dict[str, float]:
        """Observe a round; return metrics to add to those of the round.

        Args:
            number: of the round.
            before: arrays that were broadcast.
            after: reads the arrays returned by each client, by the name of the client.

        Raises:
            ExposedError: a limit that the user has set is exceeded.
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

    def observes(self, number: int) -> bool:
        return number in self.rounds

    def observe(self, number: int, before: Arrays, after: Mapping[str, Read]) -> dict[str, float]:
        """Write a round atomically, without the clients whose answers cannot be read."""
        with unharmed(f"round {number}"), whole_folder(self.of_round(number)) as folder:
            files = RoundFolder(folder)
            write_state(files.before, before)
            for client, read in after.items():
                with unharmed(f"round {number}, client {client}"):
                    path, arrays = files.client(client), read()
                    write_state(path, arrays)
        return {}


class Gauged(Observer):
    """Measurement of what a server, which knows no true samples, can find in every round.

    Args:
        measure: such as a `gleak.Gauge` for the clients' model and training.
        limits: largest accepted value by metric; the others have none.
        clients: number of clients that are measured in a round, the first whose updates can be.
    """

    def __init__(self, measure: Measure, limits: Mapping[str, float] | None, clients: int) -> None:
        self.measure, self.limits, self.clients = measure, limits or {}, clients
        self._metrics: dict[str, None] = {}

    def observes(self, number: int) -> bool:
        return True

    def observe(self, number: int, before: Arrays, after: Mapping[str, Read]) -> dict[str, float]:
        """Measure the first clients; give the largest known value of each metric.

        An update that cannot be measured exceeds no limit: the server has received it already, and
        one client must not stop the federation by it. The next client is measured in its place. A
        metric that was measured in an earlier round, but not in this one, is NaN.

        Raises:
            ExposedError: a metric exceeds its limit; names the round.
            SpecError: a limit is for a metric that is not measured.
        """
        if not after:
            return {}
        measured: list[dict[str, float]] = []
        for client, read in after.items():
            if len(measured) == self.clients:
                break
            with unharmed(f"round {number}, client {client}"):
                measured.append(measured_by(self.measure, before, read(), None))
        if not measured:
            return unknown(self._metrics or metrics_of_gauge(knows_truth=False))
        self._metrics |= dict.fromkeys(chain.from_iterable(measured))
        values = {name: [m[name] for m in measured if name in m] for name in self._metrics}
        largest = {
            name: max((value for value in known if not math.isnan(value)), default=math.nan)
            for name, known in values.items()
        }
        limits = {k: v for k, v in self.limits.items() if not math.isnan(largest.get(k, 0))}
        if over := over_limits(largest, limits):
            raise ExposedError(f"round {number}: {over}; the federation is stopped")
        return largest


def write_round(
    files: RoundFolder,
    client: str,
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    training: ObservedTraining,
    steps: int | None = None,
) -> None:
    """Write one client's round, with what was seen of its training; what was not is logged.

    Clients of one round may do so at the same time, since they begin with equal states.

    Args:
        files: of the round.
        client: its name.
        before: arrays or tensors that were broadcast.
        after: those of the client after training.
        training: of the client in this round.
        steps: that the client reports, if its training is not seen.

    Raises:
        DataError: the client is already in the folder, or its round began with other parameters.
    """
    files.check_new(client, {name: torch.as_tensor(value) for name, value in before.items()})
    recorded = {"local_steps": str(steps)} if steps else {}
    if training.rates or not steps:
        with unharmed(f"{files.path.name}, client {client}: the training"):
            recorded = training.fields()
            if training.has_samples:
                training.write_samples(files.truth(client))
                if "state" in recorded and training.state is not None:
                    write_state(files.state(client), training.state)
    if not files.before.exists():
        write_state(files.before, before)
    write_state(files.client(client), after, recorded)


def measured_by(measure: Measure, *update: Any) -> dict[str, float]:
    """Return the metrics of an update as numbers, which frameworks can send."""
    return {name: float(value) for name, value in measure(*update).items()}


def refusal(audit: Audit, received: Arrays) -> str:
    """Return why a client refuses to train on what it received; empty if it does not.

    Parameters that cannot be audited, such as those of another network, are refused, too.
    """
    try:
        alarms = audit(received)
    except GleakError as error:
        return f"refused to train: the parameters cannot be audited: {error}"
    return f"refused to train: {', '.join(alarms)} suspect crafted parameters" if alarms else ""


def over_limits(measured: Mapping[str, float], limits: Mapping[str, float]) -> str:
    """Return which metrics exceed their limits, as a clause; empty if none does.

    A metric that is not known (NaN) is not known to be within its limit, and exceeds it.

    Raises:
        SpecError: a limit is for a metric that is not measured.
    """
    for name in limits:
        if name not in measured:
            raise SpecError(f"limits: no metric {name!r} is measured; {nearest(name, measured)}")
    over = [name for name, limit in limits.items() if not measured[name] <= limit]
    return ", ".join(f"{name} is {measured[name]:.3g}, limit {limits[name]:.3g}" for name in over)


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
