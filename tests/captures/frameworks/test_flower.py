"""The wrappers around Flower's strategies, in rounds without a network; skipped without Flower."""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from torch import nn

from gleak.core.errors import DataError, ExposedError, IncompatibleError, SpecError

pytestmark = pytest.mark.filterwarnings("ignore")
pytest.importorskip("flwr", reason="Flower is an extra, not installed: make test-flower")

from flwr.app import ArrayRecord, ConfigRecord, MetricRecord, RecordDict  # noqa: E402
from flwr.serverapp.strategy import FedAvg  # noqa: E402
from flwr.serverapp.strategy.strategy_utils import aggregate_metricrecords  # noqa: E402

from gleak.captures.frameworks.flower import Capturing, Gauging, mean_of_measured, named  # noqa: E402

CLIENTS = (11, 12)
STATE = OrderedDict(nn.Linear(3, 2).state_dict())
NAMES = list(STATE)


@dataclass
class Note:
    """All that strategies ask of a message or a reply."""

    client: int
    content: RecordDict | None

    @property
    def metadata(self) -> SimpleNamespace:
        return SimpleNamespace(src_node_id=self.client)

    def has_content(self) -> bool:
        return self.content is not None

    def has_error(self) -> bool:
        return self.content is None

    @property
    def error(self) -> SimpleNamespace:
        return SimpleNamespace(reason="none")


class Plain(FedAvg):
    """Asks two clients without a network between."""

    def configure_train(self, server_round: int, arrays: Any, config: Any, grid: Any) -> list[Note]:
        content = {"arrays": arrays, "config": config}
        return [Note(client, RecordDict(content)) for client in CLIENTS]


def after(client: int) -> dict[str, torch.Tensor]:
    return {name: value + client for name, value in STATE.items()}


def as_list(state: dict[str, torch.Tensor]) -> list[np.ndarray]:
    return [value.numpy() for value in state.values()]


def go_through_a_round(strategy: Any, number: int, record: Any) -> Any:
    """Both halves of a round's training; gives what the strategy makes of it."""
    asked = strategy.configure_train(number, record(STATE), ConfigRecord(), None)
    replies = []
    for client in (note.client for note in asked):
        found = {"arrays": record(after(client)), "metrics": MetricRecord({"num-examples": 1})}
        replies.append(Note(client, RecordDict(found)))
    return strategy.aggregate_train(number, iter(replies))


def check_captured(folder: Path) -> None:
    """A round's files hold what was sent."""
    files = ["before", *(f"client-{client}" for client in CLIENTS)]
    assert sorted(path.name for path in folder.iterdir()) == [f"{f}.safetensors" for f in files]
    for name, state in zip(files, (STATE, *map(after, CLIENTS)), strict=True):
        found = load_file(folder / f"{name}.safetensors")
        assert found.keys() == state.keys()
        assert all(np.array_equal(found[key], value.numpy()) for key, value in state.items())


@pytest.mark.parametrize(
    ("record", "names"),
    [(ArrayRecord, None), (lambda state: ArrayRecord(as_list(state)), NAMES)],
    ids=["state dicts", "lists"],
)
def test_chosen_rounds_are_written_and_nothing_else_changes(
    tmp_path: Path, record: Any, names: list[str] | None
) -> None:
    plain = Plain(fraction_evaluate=0)
    wrapped = Capturing(plain, tmp_path, rounds=[2, 3], names=names)
    for number in (1, 2):
        found = go_through_a_round(wrapped, number, record)
        assert found == go_through_a_round(plain, number, record)
    assert [path.name for path in tmp_path.iterdir()] == ["round-2"]
    check_captured(tmp_path / "round-2")
    assert wrapped.configure_evaluate(1, record(STATE), ConfigRecord(), None) == []
    assert wrapped.aggregate_evaluate(1, []) is None


def test_a_client_that_failed_is_left_out(tmp_path: Path) -> None:
    wrapped = Capturing(Gauging(Plain(), shift), tmp_path)
    wrapped.configure_train(1, ArrayRecord(STATE), ConfigRecord(), None)
    assert wrapped.aggregate_train(1, [Note(CLIENTS[0], None)]) == (None, None)
    assert [path.name for path in (tmp_path / "round-1").iterdir()] == ["before.safetensors"]


@pytest.mark.parametrize("captured", [1, 50])
def test_names_are_looked_at_before_anything_is_trained(tmp_path: Path, captured: int) -> None:
    """In the first round, whichever is captured."""
    wrapped = Capturing(Plain(), tmp_path, rounds=[captured], names=NAMES[:1])
    with pytest.raises(IncompatibleError, match="2 arrays, but 1 names"):
        wrapped.configure_train(1, ArrayRecord(STATE), ConfigRecord(), None)


class Tolerant(Plain):
    """Aggregates whatever clients send."""

    def aggregate_train(self, server_round: int, replies: Any) -> tuple[None, MetricRecord]:
        return None, MetricRecord({"answered": len(list(replies))})


def test_clients_that_cannot_be_observed_do_not_end_the_round(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gauging = Gauging(Tolerant(), shift, limits={"grown": 99}, clients=2, names=NAMES)
    wrapped = Capturing(gauging, tmp_path, names=NAMES)
    wrapped.configure_train(1, ArrayRecord(as_list(STATE)), ConfigRecord(), None)
    states = zip(CLIENTS, (as_list(STATE)[:1], as_list(after(2))), strict=True)
    replies = [Note(client, RecordDict({"arrays": ArrayRecord(state)})) for client, state in states]
    _, metrics = wrapped.aggregate_train(1, replies)
    assert dict(metrics) == {"answered": 2, "grown": pytest.approx(2), "known": 0}
    assert caplog.text.count("client 11 is not observed: 1 arrays, but 2 names") == 2
    files = sorted(path.name for path in (tmp_path / "round-1").iterdir())
    assert files == ["before.safetensors", "client-12.safetensors"]
    _, metrics = gauging.aggregate_train(2, replies[:1])
    assert math.isnan(metrics["grown"])


def test_numbers_stay_numbers() -> None:
    """A counter of batch normalisation is no list of one value, which an import refuses."""
    assert named([np.array(3)], ["count"])["count"].shape == ()


def test_a_folder_with_such_a_round_is_refused_before_anything_is_trained(tmp_path: Path) -> None:
    (tmp_path / "round-1").mkdir()
    Capturing(FedAvg(), tmp_path, rounds=[2])
    with pytest.raises(DataError, match="round-1 already exists"):
        Capturing(FedAvg(), tmp_path)


def test_a_strategy_with_rounds_of_its_own_is_refused(tmp_path: Path) -> None:
    class Own(FedAvg):
        def start(self, *_: Any, **__: Any) -> None:
            """Whatever."""

    with pytest.raises(IncompatibleError, match=r"Own overrides start\(\)"):
        Capturing(Own(), tmp_path)


def shift(before: dict[str, np.ndarray], state: dict[str, np.ndarray], truth: Any) -> dict:
    """A measure: by how much a client's values grew, and whether the truth was given."""
    grown = float(np.mean([(state[name] - before[name]).mean() for name in NAMES]))
    return {"grown": grown, "known": float(truth is not None)}


def test_a_round_has_the_largest_measure_of_its_clients() -> None:
    plain = Plain(fraction_evaluate=0)
    arrays, metrics = go_through_a_round(Gauging(plain, shift, clients=2), 1, ArrayRecord)
    expected_arrays, expected = go_through_a_round(plain, 1, ArrayRecord)
    assert arrays == expected_arrays
    assert metrics["grown"] == pytest.approx(max(CLIENTS))
    assert metrics["known"] == 0
    assert {**metrics, **expected} == dict(metrics)
    _, of_one = go_through_a_round(Gauging(plain, shift), 1, ArrayRecord)
    assert of_one["grown"] == pytest.approx(CLIENTS[0])


def test_a_federation_is_stopped_above_a_limit() -> None:
    within = Gauging(Plain(), shift, limits={"grown": CLIENTS[0] + 0.5})
    go_through_a_round(within, 1, ArrayRecord)
    above = Gauging(Plain(), shift, limits={"grown": 3})
    with pytest.raises(ExposedError, match="round 7: grown is 11, limit 3; the federation is"):
        go_through_a_round(above, 7, ArrayRecord)
    misspelt = Gauging(Plain(), shift, limits={"grow": 3})
    with pytest.raises(SpecError, match="no metric 'grow' is measured; did you mean 'grown'"):
        go_through_a_round(misspelt, 1, ArrayRecord)


def test_wrappers_wrap_each_other(tmp_path: Path) -> None:
    wrapped = Capturing(Gauging(Plain(fraction_evaluate=0), shift), tmp_path)
    _, metrics = go_through_a_round(wrapped, 1, ArrayRecord)
    assert metrics["grown"] == pytest.approx(CLIENTS[0])
    check_captured(tmp_path / "round-1")


def of_client(samples: int, **metrics: Any) -> RecordDict:
    return RecordDict({"metrics": MetricRecord({"num-examples": samples, **metrics})})


def test_clients_that_have_not_measured_do_not_count() -> None:
    replies = [
        of_client(1, loss=4.0, found=1.0, layers=[1.0, 2.0], none=math.nan),
        of_client(3, loss=8.0, found=math.nan, layers=[5.0, 4.0], none=math.nan),
        of_client(1, loss=4.0, found=0.5, layers=[math.nan, 2.0], none=math.nan),
    ]
    means = dict(mean_of_measured(replies, "num-examples"))
    assert math.isnan(means.pop("none"))
    assert means == {"loss": 6.4, "found": 0.75, "layers": [4.0, 3.5]}


def test_without_unknown_values_the_mean_is_that_of_flower() -> None:
    replies = [of_client(count, loss=float(count), found=1 / count) for count in (1, 2, 5)]
    expected = aggregate_metricrecords(replies, "num-examples")
    assert dict(mean_of_measured(replies, "num-examples")) == pytest.approx(dict(expected))
