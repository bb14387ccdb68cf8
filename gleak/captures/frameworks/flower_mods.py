"""Mods of Flower clients that measure what a client's own update reveals.

`GaugingMod` measures every round, with any `Measure` such as `gleak.Gauge`, and withholds what
exceeds a limit. `Budgeted` and `Periodic` make that cheaper by measuring some rounds only.
`RefusingMod` audits what a client receives, before it trains.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass

from gleak.captures.frameworks.flower import arrays_of
from gleak.captures.frameworks.observers import (
    Audit,
    Measure,
    TimeSpent,
    Truth,
    measured_by,
    metrics_of_gauge,
    over_limits,
    refusal,
    unharmed,
    unknown,
)
from gleak.captures.round_folder import Arrays
from gleak.core.errors import IncompatibleError, SpecError, needs_extra

with needs_extra("flower"):
    from flwr.app import Context, Error, Message, MetricRecord
    from flwr.clientapp.typing import ClientAppCallable, Mod

TRAIN = "train"
ROUND = "server-round"
TIMES, MEASURED = "gleak-times", "gleak-measured"
"""Records of a client's state: the time it spent, and the metrics of its last measured round."""
WITHHELD, REFUSED = 20_001, 20_002
"""Codes of the errors that a client sends in place of an update; Flower's own are lower."""
EXPECTED = 5.0
"""CPU seconds that no first call of a `gleak.Gauge` took (docs/results/speed.md)."""


class GaugingMod:
    """Mod of a client that measures its own update before it is sent.

    The metrics are added to those that the client sends, so the server learns them. If one exceeds
    its limit, the client sends an error in place of the update. Place it last among the mods, where
    it sees what is sent.

    If the measurement fails, the reason is logged, and the update is sent with metrics that are
    NaN; if one of them has a limit, the update is withheld, as it may exceed it.

    Args:
        measure: such as a `gleak.Gauge` for the client's model and training.
        truth: gives the samples of the round, which no message contains; None: unknown.
        limits: largest accepted value by metric; the others have none.
        names: names of the arrays, if clients send plain lists of arrays; None: as sent.
        metrics: names of the metrics that are measured, to be sent as NaN; None: those of a
            `gleak.Gauge` until others were measured.
        others: gives other samples of the client, by which it is measured who of all is known to
            have taken part; None: that is not measured. It needs the truth.

    Raises:
        SpecError: others without the truth.
    """

    def __init__(
        self,
        measure: Measure,
        truth: Callable[[Context], Truth] | None = None,
        limits: Mapping[str, float] | None = None,
        names: Sequence[str] | None = None,
        metrics: Collection[str] | None = None,
        others: Callable[[Context], Truth] | None = None,
    ) -> None:
        if others is not None and truth is None:
            raise SpecError("others: needs truth, the samples of the round, too")
        self.measure, self.truth, self.others = measure, truth, others
        self.limits, self.names = limits or {}, names
        known = metrics_of_gauge(truth is not None, others is not None)
        self.metrics = known if metrics is None else metrics

    def __call__(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        """Train, measure, and send or withhold the update."""
        if not trains(message):
            return call_next(message, context)
        before = self.received(message)
        reply = call_next(message, context)
        if not reply.has_content():
            return reply
        measured = self.measured(before, reply, context) or self.unmeasured()
        return self.answer(message, reply, measured)

    def received(self, message: Message) -> Arrays:
        """Return the arrays that the client received; none if they are malformed."""
        with unharmed(f"client {message.metadata.dst_node_id}"):
            return arrays_of(message.content, self.names)
        return {}

    def measured(self, before: Arrays, reply: Message, context: Context) -> dict[str, float]:
        """Return the metrics of an update; none if they cannot be measured."""
        with unharmed(f"client {reply.metadata.src_node_id}"):
            truth = None if self.truth is None else self.truth(context)
            others = () if self.others is None else (self.others(context),)
            after = arrays_of(reply.content, self.names)
            measured = measured_by(self.measure, before, after, truth, *others)
            self.metrics = tuple(measured)
            return measured
        return {}

    def unmeasured(self) -> dict[str, float]:
        """Return the metrics of an update that cannot be measured: NaN, also where limits are."""
        return unknown([*self.metrics, *self.limits])

    def answer(self, message: Message, reply: Message, measured: Mapping[str, float]) -> Message:
        """Return the reply with its metrics, or an error in its place if one exceeds its limit."""
        if over := over_limits(measured, self.limits):
            return Message(Error(WITHHELD, f"the update is withheld: {over}"), reply_to=message)
        return with_metrics(reply, measured)


class RefusingMod:
    """Mod of a client that audits the parameters of every broadcast, before it trains on them.

    If an audit raises an alarm, the client does not train, and sends an error that names the audits
    in place of an update. Place it first among the mods.

    Args:
        audit: such as ``gauge.alarms`` of a `gleak.Gauge`.
        names: names of the arrays, if the server sends plain lists of arrays; None: as sent.
    """

    def __init__(self, audit: Audit, names: Sequence[str] | None = None) -> None:
        self.audit, self.names = audit, names

    def __call__(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        """Audit and train, or refuse to."""
        if trains(message):
            reason = refusal(self.audit, arrays_of(message.content, self.names))
            if reason:
                return Message(Error(REFUSED, reason), reply_to=message)
        return call_next(message, context)


@dataclass(frozen=True)
class Deferred:
    """Wait of a `Budgeted` mod until the time budget allows the first measurement.

    Until then updates are sent unmeasured, whatever the limits, with metrics that are NaN.

    Args:
        expected: seconds that the first measurement is expected to take, by the clock of the mod.
            What it takes longer exceeds the share.
        metrics: names of the metrics that are measured; None: those of the mod, so by default those
            of a `gleak.Gauge`.

    Raises:
        SpecError: the expected time is not above 0.
    """

    expected: float = EXPECTED
    metrics: Collection[str] | None = None

    def __post_init__(self) -> None:
        if not self.expected > 0:
            raise SpecError(f"expected={self.expected}: give the seconds of a measurement, above 0")


class Budgeted:
    """Mod that measures as many rounds as a share of the training's time pays for.

    A round is measured if all measurements, with another one that takes as long as the last, stay
    within the share of the training before it. The first round of a client is always measured, and
    exceeds the share until later rounds have paid for it, unless the first measurement is
    `Deferred`.

    Strategies refuse replies of one round with different metrics, and clients differ in speed. So
    every reply has the metrics of the client's last measured round, and two more: ``gleak-age``,
    the number of the client's rounds since then (0 in a measured round), and ``gleak-overhead``,
    the time of the mod, mostly of measurements, relative to that of the training so far. Limits
    apply to the last measured round: a client that withholds its update, or could not measure it,
    sends none until one is measured within them.

    The times are in the client's `Context`, which Flower keeps between rounds.

    Args:
        mod: measures a round.
        share: largest share of the training's time.
        clock: gives seconds, by default of CPU; `time.perf_counter` for training on a GPU.
        first: when the first measurement is made; None: in the client's first round.

    Raises:
        SpecError: the share is not above 0.
    """

    def __init__(
        self,
        mod: GaugingMod,
        share: float = 0.05,
        clock: Callable[[], float] = time.process_time,
        first: Deferred | None = None,
    ) -> None:
        if not share > 0:
            raise SpecError(f"share={share}: give a number above 0, such as 0.05")
        self.mod, self.share, self.clock = mod, share, clock
        names: Collection[str] = ()
        if first:
            names = mod.metrics if first.metrics is None else first.metrics
        self._unmeasured = unknown(names)
        self._start = TimeSpent(last=first.expected if first else 0.0)

    def __call__(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        """Train, measure if the budget allows it, and send or withhold the update."""
        if not trains(message):
            return call_next(message, context)
        start = self.clock()
        spent = TimeSpent(**context.state.get(TIMES, asdict(self._start)))
        before = self.mod.received(message) if spent.affords(self.share) else None
        begun = self.clock()
        reply = call_next(message, context)
        training = self.clock() - begun
        if not reply.has_content():
            return reply
        if before is None:
            spent = spent.with_other_round(training, self.clock() - start - training)
        else:
            self._measure(before, reply, context)
            spent = spent.with_measured_round(training, self.clock() - start - training)
        context.state[TIMES] = MetricRecord(asdict(spent))
        if MEASURED not in context.state:
            return with_metrics(reply, {**self._unmeasured, **spent.metrics})
        return self.mod.answer(message, reply, {**context.state[MEASURED], **spent.metrics})

    def _measure(self, before: Arrays, reply: Message, context: Context) -> None:
        measured = self.mod.measured(before, reply, context)
        if not measured:
            last = context.state.get(MEASURED, self._unmeasured)
            measured = unknown(last) or self.mod.unmeasured()
        elif self._unmeasured and measured.keys() != self._unmeasured.keys():
            raise SpecError(
                f"Deferred: the metrics {', '.join(self._unmeasured)} are sent before the first "
                f"measurement, but {', '.join(measured)} are measured; give "
                f"metrics={tuple(measured)}"
            )
        context.state[MEASURED] = MetricRecord(measured)


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


def with_metrics(reply: Message, metrics: Mapping[str, float]) -> Message:
    """Return a reply with metrics beside those of the training."""
    for record in reply.content.metric_records.values():
        record.update(metrics)
    return reply


def round_of(message: Message) -> int:
    """Return the number of a message's round, as Flower's strategies send it."""
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
