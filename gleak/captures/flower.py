"""Captures rounds of Flower: a wrapper around any strategy, which changes nothing it does.

For each round that is chosen the folder has ``round-<number>/before.safetensors``, what was
broadcast, and ``round-<number>/client-<node>.safetensors``, what each client returned, as ``gleak
import`` reads them (docs/real-updates.md). `Capturing` is for strategies that exchange messages
(`flwr.serverapp.strategy`), `CapturingClassic` for the older ones (`flwr.server.strategy`).

This module alone needs Flower, which is installed by ``pip install gleak[flower]``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.common import EvaluateRes, FitIns, FitRes, Parameters, Scalar, parameters_to_ndarrays
from flwr.server.client_manager import ClientManager
from flwr.server.client_proxy import ClientProxy
from flwr.server.strategy import Strategy as ClassicStrategy
from flwr.serverapp.grid import Grid
from flwr.serverapp.strategy import Strategy
from safetensors.numpy import save_file

from gleak.artifacts.atomic import whole_folder
from gleak.core.errors import DataError, IncompatibleError

Arrays = dict[str, np.ndarray]
FIRST = (1,)


class Recorder:
    """Writes the rounds that are chosen.

    Args:
        folder: holds a folder for each of them.
        rounds: their numbers; Flower counts from 1.

    Raises:
        DataError: one of them is there already.
    """

    def __init__(self, folder: Path | str, rounds: Collection[int]) -> None:
        self.folder, self.rounds = Path(folder), rounds
        self.before: Arrays = {}
        for path in map(self.of_round, rounds):
            if path.exists():
                raise DataError(f"{path}: there already; give another folder, or remove it")

    def of_round(self, number: int) -> Path:
        """The folder of one round."""
        return self.folder / f"round-{number}"

    def write(self, number: int, after: Mapping[str, Arrays]) -> None:
        """Write a round, whole or not at all.

        Args:
            number: of the round.
            after: what each client returned, by a name of the client's own.

        Raises:
            ArtifactError: no permission or no space.
        """
        with whole_folder(self.of_round(number)) as folder:
            save_file(self.before, folder / "before.safetensors")
            for client, arrays in after.items():
                save_file(arrays, folder / f"client-{client}.safetensors")


def named(arrays: Iterable[np.ndarray], names: Iterable[str]) -> Arrays:
    """Arrays by their names in the model.

    Args:
        arrays: in the order of ``names``.
        names: those of ``model.state_dict()``.

    Raises:
        IncompatibleError: there are more of one than of the other.
    """
    values, keys = list(arrays), list(names)
    if len(values) != len(keys):
        raise IncompatibleError(
            f"{len(values)} arrays, but {len(keys)} names; give names=list(model.state_dict())"
        )
    return {key: np.ascontiguousarray(value) for key, value in zip(keys, values, strict=True)}


class Capturing(Strategy):
    """Any strategy that exchanges messages, with some of its rounds captured.

    Args:
        strategy: does all the work.
        folder: where rounds are written.
        rounds: which; the first alone, unless more are asked for.
        names: of the arrays, where clients send plain lists of arrays; None: as they are sent.

    Raises:
        DataError: a round of that number is in the folder already.
        IncompatibleError: the strategy goes through its rounds in its own way, which cannot be
            followed.
    """

    def __init__(
        self,
        strategy: Strategy,
        folder: Path | str,
        rounds: Collection[int] = FIRST,
        names: Sequence[str] | None = None,
    ) -> None:
        if type(strategy).start is not Strategy.start:
            raise IncompatibleError(
                f"{type(strategy).__name__} has a start() of its own; wrap another"
            )
        self.strategy, self.names = strategy, names
        self.recorder = Recorder(folder, rounds)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """As the strategy does; what it broadcasts is noted."""
        messages = list(self.strategy.configure_train(server_round, arrays, config, grid))
        if messages and server_round in self.recorder.rounds:
            self.recorder.before = self._arrays(messages[0].content)
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """As the strategy does, after what came back is written."""
        replies = list(replies)
        if server_round in self.recorder.rounds:
            answered = [reply for reply in replies if reply.has_content()]
            after = {str(r.metadata.src_node_id): self._arrays(r.content) for r in answered}
            self.recorder.write(server_round, after)
        return self.strategy.aggregate_train(server_round, replies)

    def _arrays(self, content: RecordDict) -> Arrays:
        """The arrays of a message."""
        records = content.array_records.values()
        found = {name: array.numpy() for record in records for name, array in record.items()}
        return named(found.values(), self.names or found)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """As the strategy does."""
        return self.strategy.configure_evaluate(server_round, arrays, config, grid)

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """As the strategy does."""
        return self.strategy.aggregate_evaluate(server_round, replies)

    def summary(self) -> None:
        """As the strategy does."""
        self.strategy.summary()


class CapturingClassic(ClassicStrategy):
    """Any strategy of `flwr.server.strategy`, with some of its rounds captured.

    Args:
        strategy: does all the work.
        folder: where rounds are written.
        names: of the arrays that clients send, which are those of ``model.state_dict()``.
        rounds: which; the first alone, unless more are asked for.

    Raises:
        DataError: a round of that number is in the folder already.
    """

    def __init__(
        self,
        strategy: ClassicStrategy,
        folder: Path | str,
        names: Sequence[str],
        rounds: Collection[int] = FIRST,
    ) -> None:
        self.strategy, self.names = strategy, names
        self.recorder = Recorder(folder, rounds)

    def configure_fit(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> list[tuple[ClientProxy, FitIns]]:
        """As the strategy does; what it broadcasts is noted."""
        asked = self.strategy.configure_fit(server_round, parameters, client_manager)
        if asked and server_round in self.recorder.rounds:
            self.recorder.before = self._arrays(asked[0][1].parameters)
        return asked

    def aggregate_fit(
        self,
        server_round: int,
        results: list[tuple[ClientProxy, FitRes]],
        failures: list[tuple[ClientProxy, FitRes] | BaseException],
    ) -> tuple[Parameters | None, dict[str, Scalar]]:
        """As the strategy does, after what came back is written."""
        if server_round in self.recorder.rounds:
            after = {client.cid: self._arrays(found.parameters) for client, found in results}
            self.recorder.write(server_round, after)
        return self.strategy.aggregate_fit(server_round, results, failures)

    def _arrays(self, parameters: Parameters) -> Arrays:
        return named(parameters_to_ndarrays(parameters), self.names)

    def initialize_parameters(self, client_manager: ClientManager) -> Parameters | None:
        """As the strategy does."""
        return self.strategy.initialize_parameters(client_manager)

    def configure_evaluate(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> list[tuple[ClientProxy, Any]]:
        """As the strategy does."""
        return self.strategy.configure_evaluate(server_round, parameters, client_manager)

    def aggregate_evaluate(
        self,
        server_round: int,
        results: list[tuple[ClientProxy, EvaluateRes]],
        failures: list[tuple[ClientProxy, EvaluateRes] | BaseException],
    ) -> tuple[float | None, dict[str, Scalar]]:
        """As the strategy does."""
        return self.strategy.aggregate_evaluate(server_round, results, failures)

    def evaluate(
        self, server_round: int, parameters: Parameters
    ) -> tuple[float, dict[str, Scalar]] | None:
        """As the strategy does."""
        return self.strategy.evaluate(server_round, parameters)
