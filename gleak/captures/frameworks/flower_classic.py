"""Capture and measurement of rounds of Flower's older strategies (`flwr.server.strategy`).

They do what `gleak.captures.frameworks.flower` does for strategies that exchange messages.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from gleak.captures.frameworks.flower import FIRST, named
from gleak.captures.frameworks.observers import Gauged, Measure, Observer, Recorder
from gleak.captures.round_folder import Arrays
from gleak.core.errors import needs_extra

with needs_extra("flower"):
    from flwr.common import EvaluateRes, FitIns, FitRes, Parameters, Scalar, parameters_to_ndarrays
    from flwr.server.client_manager import ClientManager
    from flwr.server.client_proxy import ClientProxy
    from flwr.server.strategy import Strategy


class WrappingClassic(Strategy):
    """Wrapper that observes the rounds of a strategy; see `flower.Wrapping`.

    Clients send plain lists of arrays, so their names, those of ``model.state_dict()``, are needed.
    """

    def __init__(self, strategy: Strategy, observer: Observer, names: Sequence[str]) -> None:
        self.strategy, self.observer, self.names = strategy, observer, names
        self.before: Arrays = {}

    def configure_fit(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> list[tuple[ClientProxy, FitIns]]:
        asked = self.strategy.configure_fit(server_round, parameters, client_manager)
        if asked and (not self.before or self.observer.observes(server_round)):
            self.before = self._arrays(asked[0][1].parameters)
        return asked

    def aggregate_fit(
        self,
        server_round: int,
        results: list[tuple[ClientProxy, FitRes]],
        failures: list[tuple[ClientProxy, FitRes] | BaseException],
    ) -> tuple[Parameters | None, dict[str, Scalar]]:
        observed: dict[str, float] = {}
        if self.observer.observes(server_round):
            after = {
                client.cid: partial(self._arrays, reply.parameters) for client, reply in results
            }
            observed = self.observer.observe(server_round, self.before, after)
        parameters, metrics = self.strategy.aggregate_fit(server_round, results, failures)
        return parameters, {**metrics, **observed}

    def _arrays(self, parameters: Parameters) -> Arrays:
        return named(parameters_to_ndarrays(parameters), self.names)

    def initialize_parameters(self, client_manager: ClientManager) -> Parameters | None:
        return self.strategy.initialize_parameters(client_manager)

    def configure_evaluate(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> list[tuple[ClientProxy, Any]]:
        return self.strategy.configure_evaluate(server_round, parameters, client_manager)

    def aggregate_evaluate(
        self,
        server_round: int,
        results: list[tuple[ClientProxy, EvaluateRes]],
        failures: list[tuple[ClientProxy, EvaluateRes] | BaseException],
    ) -> tuple[float | None, dict[str, Scalar]]:
        return self.strategy.aggregate_evaluate(server_round, results, failures)

    def evaluate(
        self, server_round: int, parameters: Parameters
    ) -> tuple[float, dict[str, Scalar]] | None:
        return self.strategy.evaluate(server_round, parameters)


class CapturingClassic(WrappingClassic):
    """Wrapper that captures rounds; see `gleak.captures.frameworks.flower.Capturing`."""

    def __init__(
        self,
        strategy: Strategy,
        folder: Path | str,
        names: Sequence[str],
        rounds: Collection[int] = FIRST,
    ) -> None:
        super().__init__(strategy, Recorder(folder, rounds), names)


class GaugingClassic(WrappingClassic):
    """Wrapper that measures every round; see `gleak.captures.frameworks.flower.Gauging`."""

    def __init__(
        self,
        strategy: Strategy,
        measure: Measure,
        names: Sequence[str],
        limits: Mapping[str, float] | None = None,
        clients: int = 1,
    ) -> None:
        super().__init__(strategy, Gauged(measure, limits, clients), names)
