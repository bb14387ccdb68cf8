"""Capture and measurement of Flower rounds by wrappers, which do not change the training.

They are for strategies that exchange messages (`flwr.serverapp.strategy`); for the older ones see
`flower_classic`. The mods that measure at a client are in `flower_mods`, and `mean_of_measured`
aggregates their metrics. Only these modules need Flower (``pip install 'gleak[flower]'``).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from gleak.captures.frameworks.observers import Gauged, Measure, Observer, Recorder
from gleak.captures.round_folder import Arrays
from gleak.core.errors import IncompatibleError, needs_extra

with needs_extra("flower"):
    from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
    from flwr.serverapp.grid import Grid
    from flwr.serverapp.strategy import Strategy

FIRST = (1,)


def named(arrays: Iterable[np.ndarray], names: Iterable[str]) -> Arrays:
    """Return arrays by their names in ``model.state_dict()``, in one order and as many."""
    values, keys = list(arrays), list(names)
    if len(values) != len(keys):
        raise IncompatibleError(
            f"{len(values)} arrays, but {len(keys)} names; give names=list(model.state_dict())"
        )
    return {key: np.asarray(value, order="C") for key, value in zip(keys, values, strict=True)}


def arrays_of(content: RecordDict, names: Sequence[str] | None = None) -> Arrays:
    """Return the arrays of a message, with these names if they are plain lists; see `named`."""
    records = content.array_records.values()
    arrays = {name: array.numpy() for record in records for name, array in record.items()}
    return named(arrays.values(), names or arrays)


class Wrapping(Strategy):
    """Wrapper that observes the rounds of a strategy, and leaves everything else to it.

    What cannot be observed is logged. Names that do not fit the model are an error in the first
    round, before anything is trained.
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

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        messages = list(self.strategy.configure_train(server_round, arrays, config, grid))
        if messages and (not self.before or self.observer.observes(server_round)):
            self.before = arrays_of(messages[0].content, self.names)
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        replies = list(replies)
        observed: dict[str, float] = {}
        if self.observer.observes(server_round):
            after = {
                str(reply.metadata.src_node_id): partial(arrays_of, reply.content, self.names)
                for reply in replies
                if reply.has_content()
            }
            observed = self.observer.observe(server_round, self.before, after)
        arrays, metrics = self.strategy.aggregate_train(server_round, replies)
        return arrays, MetricRecord({**(metrics or {}), **observed}) if observed else metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        return self.strategy.configure_evaluate(server_round, arrays, config, grid)

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        return self.strategy.aggregate_evaluate(server_round, replies)

    def summary(self) -> None:
        self.strategy.summary()


class Capturing(Wrapping):
    """Wrapper that captures rounds in the format of ``gleak import`` (docs/guide/real-updates.md).

    Args:
        strategy: wrapped strategy.
        folder: output; in it ``round-<number>/before.safetensors``, as broadcast, and each client's
            reply ``round-<number>/client-<node>.safetensors``.
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
    one exceeds its limit. The server knows no true samples. Of an update that cannot be measured
    the metrics are NaN, and exceed no limit.

    Args:
        strategy: wrapped strategy.
        measure: such as a `gleak.Gauge` for the clients' model and training.
        limits: largest accepted value by metric; the others have none.
        clients: number of clients that are measured in a round, the first whose updates can be.
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


def mean_of_measured(replies: list[RecordDict], weighted_by_key: str) -> MetricRecord:
    """Compute the weighted mean of each metric, without the clients whose value is NaN.

    Flower's own mean of a metric is NaN until every client of `Deferred` mods has measured a round.
    Give this one to a strategy as ``train_metrics_aggr_fn``.

    Args:
        replies: of the clients of a round, with the same metrics.
        weighted_by_key: name of the metric with the weights.

    Returns:
        All metrics but the weights; NaN if no client has measured one.
    """
    clients = [record for reply in replies for record in reply.metric_records.values()]
    weights = np.array([record[weighted_by_key] for record in clients])
    names = [name for name in clients[0] if name != weighted_by_key]
    means = MetricRecord()
    for name in names:
        values = np.array([record[name] for record in clients])  # scalars or lists
        known = ~np.isnan(values).reshape(len(values), -1).any(1)
        means[name] = (
            np.average(values[known], 0, weights[known]).tolist() if known.any() else math.nan
        )
    return means
