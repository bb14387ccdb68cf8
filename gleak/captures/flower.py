"""Capture of Flower rounds by a wrapper around any strategy, which does not change its behaviour.

For each captured round the folder contains the broadcast ``round-<number>/before.safetensors`` and
each client's reply ``round-<number>/client-<node>.safetensors``, in the format of ``gleak import``
(docs/guide/real-updates.md). `Capturing` is for strategies that exchange messages
(`flwr.serverapp.strategy`), `CapturingClassic` for the older ones (`flwr.server.strategy`).

Only this module needs Flower, which is installed by ``pip install 'gleak[flower]'``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from typing_extensions import override

from gleak.artifacts.atomic import whole_folder
from gleak.captures.round_folder import RoundFolder
from gleak.core.errors import DataError, IncompatibleError, needs_extra

with needs_extra("flower"):
    from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
    from flwr.common import EvaluateRes, FitIns, FitRes, Parameters, Scalar, parameters_to_ndarrays
    from flwr.server.client_manager import ClientManager
    from flwr.server.client_proxy import ClientProxy
    from flwr.server.strategy import Strategy as ClassicStrategy
    from flwr.serverapp.grid import Grid
    from flwr.serverapp.strategy import Strategy

Arrays = dict[str, np.ndarray]
FIRST = (1,)


class Recorder:
    """Writer of captured rounds.

    Args:
        folder: contains a folder for each round.
        rounds: numbers of the rounds to capture; Flower counts from 1.

    Raises:
        DataError: the folder of a round already exists.
    """

    def __init__(self, folder: Path | str, rounds: Collection[int]) -> None:
        self.folder, self.rounds = Path(folder), rounds
        self.before: Arrays = {}
        for path in map(self.of_round, rounds):
            if path.exists():
                raise DataError(f"{path} already exists; choose another folder, or remove it")

    def of_round(self, number: int) -> Path:
        """Return the folder of a round."""
        return self.folder / f"round-{number}"

    def write(self, number: int, after: Mapping[str, Arrays]) -> None:
        """Write a round atomically.

        Args:
            number: number of the round.
            after: arrays returned by each client, by the name of the client.

        Raises:
            ArtifactError: no permission or no space.
        """
        with whole_folder(self.of_round(number)) as folder:
            files = RoundFolder(folder)
            save_file(self.before, files.before)
            for client, arrays in after.items():
                save_file(arrays, files.client(client))


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


class Capturing(Strategy):
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
        if type(strategy).start is not Strategy.start:
            raise IncompatibleError(
                f"{type(strategy).__name__} overrides start(); wrap another strategy"
            )
        self.strategy, self.names = strategy, names
        self.recorder = Recorder(folder, rounds)

    @override
    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        messages = list(self.strategy.configure_train(server_round, arrays, config, grid))
        if messages and server_round in self.recorder.rounds:
            self.recorder.before = self._arrays(messages[0].content)
        return messages

    @override
    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        replies = list(replies)
        if server_round in self.recorder.rounds:
            answered = [reply for reply in replies if reply.has_content()]
            after = {str(r.metadata.src_node_id): self._arrays(r.content) for r in answered}
            self.recorder.write(server_round, after)
        return self.strategy.aggregate_train(server_round, replies)

    def _arrays(self, content: RecordDict) -> Arrays:
        """Return the arrays of a message."""
        records = content.array_records.values()
        arrays = {name: array.numpy() for record in records for name, array in record.items()}
        return named(arrays.values(), self.names or arrays)

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
        self.recorder = Recorder(folder, rounds)

    @override
    def configure_fit(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> list[tuple[ClientProxy, FitIns]]:
        asked = self.strategy.configure_fit(server_round, parameters, client_manager)
        if asked and server_round in self.recorder.rounds:
            self.recorder.before = self._arrays(asked[0][1].parameters)
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
            self.recorder.write(server_round, after)
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
