"""The wrappers around Flower's older strategies; skipped without Flower."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from gleak.captures.round_folder import Arrays
from gleak.core.errors import ExposedError

pytestmark = pytest.mark.filterwarnings("ignore")
pytest.importorskip("flwr", reason="Flower is an extra, not installed: make test-flower")

from flwr.common import Code, FitRes, Status, ndarrays_to_parameters  # noqa: E402
from flwr.server.client_manager import SimpleClientManager  # noqa: E402
from flwr.server.strategy import FedAvg, Strategy  # noqa: E402

from gleak.captures.frameworks.flower_classic import CapturingClassic, GaugingClassic  # noqa: E402

CLIENTS = ("11", "12")
NAMES = ["weight", "bias"]
STATE = [np.zeros((2, 3), np.float32), np.ones(2, np.float32)]
INITIAL = ndarrays_to_parameters(STATE)


@dataclass(frozen=True)
class Proxy:
    """All that a strategy asks of a client."""

    cid: str


@pytest.fixture
def plain() -> FedAvg:
    return FedAvg(initial_parameters=INITIAL, min_available_clients=2)


@pytest.fixture
def clients() -> SimpleClientManager:
    manager = SimpleClientManager()
    for client in CLIENTS:
        manager.register(Proxy(client))
    return manager


def after(client: str) -> list[np.ndarray]:
    return [value + int(client) for value in STATE]


def answers() -> list[tuple[Proxy, FitRes]]:
    parameters = {client: ndarrays_to_parameters(after(client)) for client in CLIENTS}
    ok = Status(Code.OK, "")
    return [(Proxy(client), FitRes(ok, parameters[client], 1, metrics={})) for client in CLIENTS]


def go_through_a_round(strategy: Strategy, clients: SimpleClientManager, number: int = 1) -> Any:
    assert len(strategy.configure_fit(number, INITIAL, clients)) == len(CLIENTS)
    return strategy.aggregate_fit(number, answers(), [])


def grown(before: Arrays, state: Arrays, _: object) -> dict[str, float]:
    """A measure: by how much a client's values grew."""
    return {"grown": float(np.mean([(state[name] - before[name]).mean() for name in NAMES]))}


def test_chosen_rounds_are_written_and_nothing_else_changes(
    plain: FedAvg, clients: SimpleClientManager, tmp_path: Path
) -> None:
    wrapped = CapturingClassic(plain, tmp_path, NAMES, rounds=[2])
    assert wrapped.initialize_parameters(clients) == INITIAL
    for number in (1, 2):
        assert go_through_a_round(wrapped, clients, number) == plain.aggregate_fit(
            number, answers(), []
        )
    assert [path.name for path in tmp_path.iterdir()] == ["round-2"]
    expected = {"before": STATE, **{f"client-{client}": after(client) for client in CLIENTS}}
    for file, state in expected.items():
        found = load_file(tmp_path / f"round-2/{file}.safetensors")
        assert all(np.array_equal(found[k], v) for k, v in zip(NAMES, state, strict=True))
    assert wrapped.evaluate(1, INITIAL) is None
    assert len(wrapped.configure_evaluate(1, INITIAL, clients)) == len(CLIENTS)
    assert wrapped.aggregate_evaluate(1, [], []) == (None, {})


def test_a_round_has_the_largest_measure_of_its_clients(
    plain: FedAvg, clients: SimpleClientManager
) -> None:
    gauging = GaugingClassic(plain, grown, NAMES, clients=2)
    parameters, metrics = go_through_a_round(gauging, clients)
    assert parameters == plain.aggregate_fit(1, answers(), [])[0]
    assert metrics == {"grown": pytest.approx(12)}


def test_what_cannot_be_measured_ends_no_round_and_a_limit_stops_a_federation(
    plain: FedAvg, clients: SimpleClientManager, caplog: pytest.LogCaptureFixture
) -> None:
    wrapped = GaugingClassic(plain, grown, NAMES, limits={"grown": 3})
    wrapped.configure_fit(1, INITIAL, clients)
    wrapped.names = NAMES[:1]
    wrapped.aggregate_fit(1, answers(), [])
    assert "round 1, client 11 is not observed: 2 arrays, but 1 names" in caplog.text
    wrapped.names = NAMES
    with pytest.raises(ExposedError, match="round 7: grown is 11, limit 3"):
        go_through_a_round(wrapped, clients, 7)
