"""Capture and measurement of Flower rounds by wrappers, which do not change the training.

For each captured round the folder contains the broadcast ``round-<number>/before.safetensors`` and
each client's reply ``round-<number>/client-<node>.safetensors``, in the format of ``gleak import``
(docs/guide/real-updates.md). `Capturing` is for strategies that exchange messages
(`flwr.serverapp.strategy`); for the older ones see `gleak.captures.flower_classic`.

`Gauging` (on the server) and `GaugingMod` (on a client) measure what updates reveal, with any
`Measure` such as `gleak.Gauge`, and stop what exceeds a limit. `Budgeted` and `Periodic` make that
cheaper by measuring some rounds only.

Only this module and `flower_classic` need Flower (``pip install 'gleak[flower]'``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from typing_extensions import override

from gleak.captures.observers import Gauged, Measure, Observer, Recorder, Truth, over_limits
from gleak.captures.round_folder import Arrays
from gleak.captures.time_budget import TimeSpent
from gleak.core.errors import IncompatibleError, SpecError, needs_extra

with needs_extra("flower"):
    from flwr.app import (
        ArrayRecord,
        ConfigRecord,
        Context,
        Error,
        Message,
        MetricRecord,
        RecordDict,
    )
    from flwr.clientapp.typing import ClientAppCallable, Mod
    from flwr.serverapp.grid import Grid
    from flwr.serverapp.strategy import Strategy

FIRST = (1,)
TRAIN = "train"
ROUND = "server-round"
TIMES, MEASURED = "gleak-times", "gleak-measured"
"""Records of a client's state: the time it spent, and the metrics of its last measured round."""
WITHHELD = 20_001
"""Code of the error that a client sends in place of an update; Flower's own are lower."""


def named(arrays: Iterable[np.ndarray], names: Iterable[str]) -> Arrays:
    """Return arrays by their names in the model.

    Args:
        arrays: arrays in the order of ``names``.
        names: names in ``model.state_dict()``.

    Raises:
        IncompatibleError: the numbers of arrays and names differ.
    """
    values, keys = list(arrays), list(names)
    if len(values) != len(keys):
        raise IncompatibleError(
            f"{len(values)} arrays, but {len(keys)} names; give names=list(model.state_dict())"
        )
    return {key: np.ascontiguousarray(value) for key, value in zip(keys, values, strict=True)}


def arrays_of(content: RecordDict, names: Sequence[str] | None = None) -> Arrays:
    """Return the arrays of a message.

    Args:
        content: content of the message.
        names: names of the arrays, if they are plain lists; None: as sent.

    Raises:
        IncompatibleError: the numbers of arrays and names differ.
    """
    records = content.array_records.values()
    arrays = {name: array.numpy() for record in records for name, array in record.items()}
    return named(arrays.values(), names or arrays)


class Wrapping(Strategy):
    """Wrapper that observes the rounds of a strategy, and leaves everything else to it.

    Args:
        strategy: wrapped strategy.
        observer: of the rounds.
        names: names of the arrays, if clients send plain lists of arrays; None: as sent.

    Raises:
        IncompatibleError: the strategy overrides start(), so its rounds cannot be observed.
    """

    def __init__(
        self, strategy: Strategy, observer: Observer, names: Sequence[str] | None = None
    ) -> None:
        if type(strategy).start is not Strategy.start:
            raise IncompatibleError(
                f"{type(strategy).__name__} overrides start(); wrap another strategy"
            )
        self.strategy, self.observer, self.names = strategy, observer, names
        self.before: Arrays = {}

    @override
    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        messages = list(self.strategy.configure_train(server_round, arrays, config, grid))
        if messages and self.observer.observes(server_round):
            self.before = arrays_of(messages[0].content, self.names)
        return messages

    @override
    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        replies = list(replies)
        observed: dict[str, float] = {}
        if self.observer.observes(server_round):
            answered = [reply for reply in replies if reply.has_content()]
            after = {
                str(reply.metadata.src_node_id): arrays_of(reply.content, self.names)
                for reply in answered
            }
            observed = self.observer.observe(server_round, self.before, after)
        arrays, metrics = self.strategy.aggregate_train(server_round, replies)
        return arrays, MetricRecord({**(metrics or {}), **observed}) if observed else metrics

    @override
    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        return self.strategy.configure_evaluate(server_round, arrays, config, grid)

    @override
    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        return self.strategy.aggregate_evaluate(server_round, replies)

    @override
    def summary(self) -> None:
        self.strategy.summary()


class Capturing(Wrapping):
    """Wrapper that captures rounds of a strategy that exchanges messages.

    Args:
        strategy: wrapped strategy.
        folder: output folder.
        rounds: numbers of the rounds to capture; by default only the first.
        names: names of the arrays, if clients send plain lists of arrays; None: as sent.

    Raises:
        DataError: a captured round of that number already exists in the folder.
        IncompatibleError: the strategy overrides start(), so its rounds cannot be observed.
    """

    def __init__(
        self,
        strategy: Strategy,
        folder: Path | str,
        rounds: Collection[int] = FIRST,
        names: Sequence[str] | None = None,
    ) -> None:
        super().__init__(strategy, Recorder(folder, rounds), names)


class Gauging(Wrapping):
    """Wrapper that measures what the server can find in the updates of every round.

    The metrics of a round get the largest value of its clients, and the federation is stopped if
    one exceeds its limit. The server knows no true samples.

    Args:
        strategy: wrapped strategy.
        measure: such as a `gleak.Gauge` for the clients' model and training.
        limits: largest accepted value by metric; the others have none.
        clients: number of clients that are measured in a round, the first to answer.
        names: names of the arrays, if clients send plain lists of arrays; None: as sent.

    Raises:
        IncompatibleError: the strategy overrides start(), so its rounds cannot be observed.
    """

    def __init__(
        self,
        strategy: Strategy,
        measure: Measure,
        limits: Mapping[str, float] | None = None,
        clients: int = 1,
        names: Sequence[str] | None = None,
    ) -> None:
        super().__init__(strategy, Gauged(measure, limits, clients), names)


class GaugingMod:
    """Mod of a client that measures its own update before it is sent.

    The metrics are added to those that the client sends, so the server learns them. If one exceeds
    its limit, the client sends an error in place of the update. Place it last among the mods, where
    it sees what is sent.

    Args:
        measure: such as a `gleak.Gauge` for the client's model and training.
        truth: gives the samples of the round, which no message contains; None: unknown.
        limits: largest accepted value by metric; the others have none.
        names: names of the arrays, if clients send plain lists of arrays; None: as sent.
    """

    def __init__(
        self,
        measure: Measure,
        truth: Callable[[Context], Truth] | None = None,
        limits: Mapping[str, float] | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        self.measure, self.truth = measure, truth
        self.limits, self.names = limits or {}, names

    def __call__(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        """Train, measure, and send or withhold the update."""
        if not trains(message):
            return call_next(message, context)
        before = arrays_of(message.content, self.names)
        reply = call_next(message, context)
        if not reply.has_content():
            return reply
        return self.answer(message, reply, self.measured(before, reply, context))

    def measured(self, before: Arrays, reply: Message, context: Context) -> dict[str, float]:
        """Return the metrics of an update.

        Args:
            before: arrays that the client received.
            reply: with the arrays after training.
            context: of the client, for the true samples.
        """
        truth = None if self.truth is None else self.truth(context)
        return self.measure(before, arrays_of(reply.content, self.names), truth)

    def answer(self, message: Message, reply: Message, measured: Mapping[str, float]) -> Message:
        """Return the reply with its metrics, or an error in its place if one exceeds its limit."""
        if over := over_limits(measured, self.limits):
            return Message(Error(WITHHELD, f"the update is withheld: {over}"), reply_to=message)
        for record in reply.content.metric_records.values():
            record.update(measured)
        return reply


class Budgeted:
    """Mod that measures as many rounds as a share of the training's time pays for.

    A round is measured if all measurements, with another one that takes as long as the last, stay
    within the share of the training before it. The first round of a client is always measured, and
    exceeds the share until later rounds have paid for it.

    Strategies refuse replies of one round with different metrics, and clients differ in speed. So
    every reply has the metrics of the client's last measured round, and two more: ``gleak-age``,
    the number of the client's rounds since then (0 in a measured round), and ``gleak-overhead``,
    the time of all measurements relative to that of the training so far. Limits apply to the last
    measured round: a client that withholds its update sends none until one is measured within them.

    The times are in the client's `Context`, which Flower keeps between rounds.

    Args:
        mod: measures a round.
        share: largest share of the training's time.
        clock: gives seconds, by default of CPU; `time.perf_counter` for training on a GPU.

    Raises:
        SpecError: the share is not above 0.
    """

    def __init__(
        self,
        mod: GaugingMod,
        share: float = 0.05,
        clock: Callable[[], float] = time.process_time,
    ) -> None:
        if not share > 0:
            raise SpecError(f"share={share}: give a number above 0, such as 0.05")
        self.mod, self.share, self.clock = mod, share, clock

    def __call__(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        """Train, measure if the budget allows it, and send or withhold the update."""
        if not trains(message):
            return call_next(message, context)
        spent = TimeSpent.of_record(context.state.get(TIMES, {}))
        take_part = self._measure if spent.affords(self.share) else self._train
        reply, spent = take_part(spent, message, context, call_next)
        if not reply.has_content():
            return reply
        context.state[TIMES] = MetricRecord(spent.record)
        metrics = {**context.state[MEASURED], **spent.metrics}
        return self.mod.answer(message, reply, metrics)

    def _measure(
        self, spent: TimeSpent, message: Message, context: Context, call_next: ClientAppCallable
    ) -> tuple[Message, TimeSpent]:
        start = self.clock()
        before = arrays_of(message.content, self.mod.names)
        reply, training = self._timed(message, context, call_next)
        if reply.has_content():
            context.state[MEASURED] = MetricRecord(self.mod.measured(before, reply, context))
        return reply, spent.with_measured_round(training, self.clock() - start - training)

    def _train(
        self, spent: TimeSpent, message: Message, context: Context, call_next: ClientAppCallable
    ) -> tuple[Message, TimeSpent]:
        reply, training = self._timed(message, context, call_next)
        return reply, spent.with_other_round(training)

    def _timed(
        self, message: Message, context: Context, call_next: ClientAppCallable
    ) -> tuple[Message, float]:
        """Train; return the reply and the seconds that it took."""
        start = self.clock()
        reply = call_next(message, context)
        return reply, self.clock() - start


class Periodic:
    """Mod that applies another one in every n-th round only, so that it costs less.

    It is applied in the first round, then after every n rounds. All clients agree on these rounds,
    since strategies refuse replies of one round with different metrics. The updates of the other
    rounds are sent as they are, so limits of a `GaugingMod` are not checked in them.

    Args:
        mod: such as a `GaugingMod`.
        every: n, at least 1.
    """

    def __init__(self, mod: Mod, every: int) -> None:
        self.mod, self.every = mod, every

    def __call__(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        """Train, with or without the mod.

        Raises:
            IncompatibleError: the message does not contain the number of the round.
        """
        if trains(message) and (round_of(message) - 1) % self.every:
            return call_next(message, context)
        return self.mod(message, context, call_next)


def round_of(message: Message) -> int:
    """Return the number of a message's round, as Flower's strategies send it.

    Raises:
        IncompatibleError: it is missing.
    """
    for record in message.content.config_records.values():
        if ROUND in record:
            return int(record[ROUND])
    raise IncompatibleError(
        f"the message has no {ROUND!r}, which Flower's strategies add to the configuration of a "
        "round; let the strategy add it, or use the mod without Periodic"
    )


def trains(message: Message) -> bool:
    """Return True if a message asks a client to train."""
    return message.metadata.message_type.partition(".")[0] == TRAIN
