"""Capture and measurement of Flower rounds by wrappers, which do not change the training.

For each captured round the folder contains the broadcast ``round-<number>/before.safetensors`` and
each client's reply ``round-<number>/client-<node>.safetensors``, in the format of ``gleak import``
(docs/guide/real-updates.md). `Capturing` is for strategies that exchange messages
(`flwr.serverapp.strategy`), `CapturingClassic` for the older ones (`flwr.server.strategy`).

`Gauging` (on the server) and `GaugingMod` (on a client) measure what updates reveal, with any
`Measure` such as `gleak.Gauge`, and stop what exceeds a limit.

Only this module needs Flower, which is installed by ``pip install 'gleak[flower]'``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

from gleak.captures.round_folder import Arrays, Recorder
from gleak.core.errors import (
    ExposedError,
    IncompatibleError,
    SpecError,
    nearest,
    needs_extra,
)

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
    from flwr.clientapp.typing import ClientAppCallable
    from flwr.common import EvaluateRes, FitIns, FitRes, Parameters, Scalar, parameters_to_ndarrays
    from flwr.server.client_manager import ClientManager
    from flwr.server.client_proxy import ClientProxy
    from flwr.server.strategy import Strategy as ClassicStrategy
    from flwr.serverapp.grid import Grid
    from flwr.serverapp.strategy import Strategy

Truth = tuple[Any, Any]
"""Inputs with values in [0, 1], Shape (N, *shape), and labels, Shape (N)."""
Measure = Callable[[Arrays, Arrays, Truth | None], dict[str, float]]
"""Function from states before and after training, and the truth if it is known, to metrics."""
FIRST = (1,)
TRAIN = "train"
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


class Wrapping(Strategy):
    """Base of the wrappers of a strategy that exchanges messages; leaves everything to it.

    Args:
        strategy: wrapped strategy.
        names: names of the arrays, if clients send plain lists of arrays; None: as sent.

    Raises:
        IncompatibleError: the strategy overrides start(), so its rounds cannot be observed.
    """

    def __init__(self, strategy: Strategy, names: Sequence[str] | None = None) -> None:
        if type(strategy).start is not Strategy.start:
            raise IncompatibleError(
                f"{type(strategy).__name__} overrides start(); wrap another strategy"
            )
        self.strategy, self.names = strategy, names
        self.before: Arrays = {}

    @override
    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        messages = list(self.strategy.configure_train(server_round, arrays, config, grid))
        if messages and self.observes(server_round):
            self.before = arrays_of(messages[0].content, self.names)
        return messages

    @override
    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        replies = list(replies)
        observed: dict[str, float] = {}
        if self.observes(server_round):
            answered = [reply for reply in replies if reply.has_content()]
            after = {
                str(reply.metadata.src_node_id): arrays_of(reply.content, self.names)
                for reply in answered
            }
            observed = self.observe(server_round, after)
        arrays, metrics = self.strategy.aggregate_train(server_round, replies)
        return arrays, MetricRecord({**(metrics or {}), **observed}) if observed else metrics

    @abstractmethod
    def observes(self, server_round: int) -> bool:
        """Return True if a round is observed."""

    @abstractmethod
    def observe(self, server_round: int, after: Mapping[str, Arrays]) -> dict[str, float]:
        """Observe a round.

        Args:
            server_round: number of the round; `before` has the arrays that were broadcast.
            after: arrays returned by each client, by the name of the client.

        Returns:
            Metrics to add to those of the round.
        """

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
        super().__init__(strategy, names)
        self.recorder = Recorder(folder, rounds)

    @override
    def observes(self, server_round: int) -> bool:
        return server_round in self.recorder.rounds

    @override
    def observe(self, server_round: int, after: Mapping[str, Arrays]) -> dict[str, float]:
        self.recorder.write(server_round, self.before, after)
        return {}


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
        super().__init__(strategy, names)
        self.measure, self.limits, self.clients = measure, limits or {}, clients

    @override
    def observes(self, server_round: int) -> bool:
        return True

    @override
    def observe(self, server_round: int, after: Mapping[str, Arrays]) -> dict[str, float]:
        """Measure the first clients.

        Raises:
            ExposedError: a metric exceeds its limit; names the round.
        """
        measured = [
            self.measure(self.before, state, None) for state in [*after.values()][: self.clients]
        ]
        if not measured:
            return {}
        largest = {name: max(each[name] for each in measured) for name in measured[0]}
        if over := over_limits(largest, self.limits):
            raise ExposedError(f"round {server_round}: {over}; the federation is stopped")
        return largest


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
        trains = message.metadata.message_type.partition(".")[0] == TRAIN
        before = arrays_of(message.content, self.names) if trains else {}
        reply = call_next(message, context)
        if not trains or not reply.has_content():
            return reply
        truth = None if self.truth is None else self.truth(context)
        measured = self.measure(before, arrays_of(reply.content, self.names), truth)
        if over := over_limits(measured, self.limits):
            return Message(Error(WITHHELD, f"the update is withheld: {over}"), reply_to=message)
        for record in reply.content.metric_records.values():
            record.update(measured)
        return reply


class CapturingClassic(ClassicStrategy):
    """Wrapper that captures rounds of a strategy of `flwr.server.strategy`.

    Args:
        strategy: wrapped strategy.
        folder: output folder.
        names: names of the arrays that clients send, those of ``model.state_dict()``.
        rounds: numbers of the rounds to capture; by default only the first.

    Raises:
        DataError: a captured round of that number already exists in the folder.
    """

    def __init__(
        self,
        strategy: ClassicStrategy,
        folder: Path | str,
        names: Sequence[str],
        rounds: Collection[int] = FIRST,
    ) -> None:
        self.strategy, self.names = strategy, names
        self.recorder, self.before = Recorder(folder, rounds), dict[str, np.ndarray]()

    @override
    def configure_fit(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> list[tuple[ClientProxy, FitIns]]:
        asked = self.strategy.configure_fit(server_round, parameters, client_manager)
        if asked and server_round in self.recorder.rounds:
            self.before = self._arrays(asked[0][1].parameters)
        return asked

    @override
    def aggregate_fit(
        self,
        server_round: int,
        results: list[tuple[ClientProxy, FitRes]],
        failures: list[tuple[ClientProxy, FitRes] | BaseException],
    ) -> tuple[Parameters | None, dict[str, Scalar]]:
        if server_round in self.recorder.rounds:
            after = {client.cid: self._arrays(reply.parameters) for client, reply in results}
            self.recorder.write(server_round, self.before, after)
        return self.strategy.aggregate_fit(server_round, results, failures)

    def _arrays(self, parameters: Parameters) -> Arrays:
        return named(parameters_to_ndarrays(parameters), self.names)

    @override
    def initialize_parameters(self, client_manager: ClientManager) -> Parameters | None:
        return self.strategy.initialize_parameters(client_manager)

    @override
    def configure_evaluate(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> list[tuple[ClientProxy, Any]]:
        return self.strategy.configure_evaluate(server_round, parameters, client_manager)

    @override
    def aggregate_evaluate(
        self,
        server_round: int,
        results: list[tuple[ClientProxy, EvaluateRes]],
        failures: list[tuple[ClientProxy, EvaluateRes] | BaseException],
    ) -> tuple[float | None, dict[str, Scalar]]:
        return self.strategy.aggregate_evaluate(server_round, results, failures)

    @override
    def evaluate(
        self, server_round: int, parameters: Parameters
    ) -> tuple[float, dict[str, Scalar]] | None:
        return self.strategy.evaluate(server_round, parameters)
