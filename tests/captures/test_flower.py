"""The wrappers around Flower's strategies, in rounds without a network; skipped without Flower."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from time import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from torch import nn

import gleak
from gleak.core.errors import DataError, ExposedError, IncompatibleError, SpecError

pytestmark = pytest.mark.filterwarnings("ignore")
pytest.importorskip("flwr", reason="Flower is an extra, not installed: make test-flower")

from flwr.app import (  # noqa: E402
    ArrayRecord,
    ConfigRecord,
    Context,
    Error,
    Message,
    MetricRecord,
    RecordDict,
)
from flwr.app.metadata import Metadata  # noqa: E402
from flwr.serverapp.strategy import FedAvg  # noqa: E402

from gleak.captures.flower import (  # noqa: E402
    Budgeted,
    Capturing,
    Gauging,
    GaugingMod,
    Periodic,
    round_of,
)

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

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Any
    ) -> list[Note]:
        return [
            Note(client, RecordDict({"arrays": arrays, "config": config})) for client in CLIENTS
        ]


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
    wrapped = Capturing(Plain(), tmp_path)
    wrapped.configure_train(1, ArrayRecord(STATE), ConfigRecord(), None)
    assert wrapped.aggregate_train(1, [Note(CLIENTS[0], None)]) == (None, None)
    assert [path.name for path in (tmp_path / "round-1").iterdir()] == ["before.safetensors"]


def test_names_that_are_not_as_many_are_refused(tmp_path: Path) -> None:
    wrapped = Capturing(Plain(), tmp_path, names=NAMES[:1])
    with pytest.raises(IncompatibleError, match="2 arrays, but 1 names"):
        wrapped.configure_train(1, ArrayRecord(STATE), ConfigRecord(), None)


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


def test_a_round_without_answers_is_not_measured() -> None:
    wrapped = Gauging(Plain(), shift)
    wrapped.configure_train(1, ArrayRecord(STATE), ConfigRecord(), None)
    assert wrapped.aggregate_train(1, [Note(CLIENTS[0], None)]) == (None, None)


def test_wrappers_wrap_each_other(tmp_path: Path) -> None:
    wrapped = Capturing(Gauging(Plain(fraction_evaluate=0), shift), tmp_path)
    _, metrics = go_through_a_round(wrapped, 1, ArrayRecord)
    assert metrics["grown"] == pytest.approx(CLIENTS[0])
    check_captured(tmp_path / "round-1")


def trained(message: Message, context: Any) -> Message:
    found = {"arrays": ArrayRecord(after(2)), "metrics": MetricRecord({"num-examples": 5})}
    return Message(RecordDict(found), reply_to=message)


def asked(kind: str = "train", state: dict[str, torch.Tensor] = STATE, **config: int) -> Message:
    content = RecordDict({"arrays": ArrayRecord(state), "config": ConfigRecord(config)})
    addresses = {"run_id": 1, "message_id": "1", "src_node_id": 1, "dst_node_id": CLIENTS[0]}
    rest = {"reply_to_message_id": "", "group_id": "", "created_at": time(), "ttl": 60.0}
    return Message(content, metadata=Metadata(**addresses, **rest, message_type=kind))


def test_a_client_measures_what_it_sends() -> None:
    seen: list[Any] = []

    def truth(context: Any) -> tuple[int, int]:
        seen.append(context)
        return (1, 2)

    reply = GaugingMod(shift, truth)(asked(), "context", trained)
    assert seen == ["context"]
    assert dict(reply.content["metrics"]) == {"num-examples": 5, "grown": 2.0, "known": 1.0}
    assert reply.content["arrays"] == ArrayRecord(after(2))


def test_an_update_above_a_limit_is_withheld() -> None:
    reply = GaugingMod(shift, limits={"grown": 1})(asked(), None, trained)
    assert not reply.has_content()
    assert reply.error.reason == "the update is withheld: grown is 2, limit 1"


def test_other_messages_pass_a_mod() -> None:
    reply = GaugingMod(shift, limits={"grown": 0})(asked("evaluate"), None, trained)
    assert dict(reply.content["metrics"]) == {"num-examples": 5}


def test_a_mod_of_some_rounds_is_left_out_of_the_others() -> None:
    sparing = Periodic(GaugingMod(shift), every=3)
    found = {
        number: "grown"
        in sparing(asked(**{"server-round": number}), None, trained).content["metrics"]
        for number in range(1, 8)
    }
    assert [number for number, measured in found.items() if measured] == [1, 4, 7]
    assert "grown" not in sparing(asked("evaluate"), None, trained).content["metrics"]
    with pytest.raises(IncompatibleError, match="no 'server-round'"):
        sparing(asked(), None, trained)


@dataclass
class Timed:
    """A client whose clock advances by the time that it trains or measures."""

    training: float
    measuring: float
    grown: float = 2
    now: float = 0

    def __post_init__(self) -> None:
        self.context = Context(1, CLIENTS[0], {}, RecordDict(), {})

    def train(self, message: Message, context: Context) -> Message:
        self.now += self.training
        return trained(message, context)

    def measure(self, before: Any, state: Any, truth: Any) -> dict[str, float]:
        self.now += self.measuring
        return {"grown": self.grown}

    def rounds(self, number: int, **options: Any) -> list[Message]:
        """Replies of so many rounds, of which an eighth of the time may be measuring."""
        mod = Budgeted(GaugingMod(self.measure, **options), share=0.125, clock=lambda: self.now)
        return [mod(asked(), self.context, self.train) for _ in range(number)]


def metrics(replies: list[Message], name: str) -> list[Any]:
    return [reply.content["metrics"][name] for reply in replies]


def test_a_budget_is_kept_and_replies_say_how_old_their_values_are() -> None:
    client = Timed(training=1, measuring=0.5)
    replies = client.rounds(30)
    measured = [number for number, age in enumerate(metrics(replies, "gleak-age")) if not age]
    assert measured == [0, 8, 12, 16, 20, 24, 28]
    assert metrics(replies, "grown") == [2] * 30
    assert client.now == 30 + 7 * 0.5
    overheads = metrics(replies, "gleak-overhead")
    assert overheads[0] == 0.5
    assert max(overheads[4:]) <= 0.125


def test_clients_of_different_speed_are_aggregated() -> None:
    """Flower refuses replies of one round with different metrics."""
    replies = [Timed(training=1, measuring=cost).rounds(21)[-1] for cost in (0.125, 0.375)]
    assert metrics(replies, "gleak-age") == [0, 2]
    arrays, found = FedAvg().aggregate_train(21, replies)
    assert arrays is not None
    assert found["gleak-age"] == pytest.approx(1)


def test_a_limit_holds_until_a_round_is_measured_to_be_within_it() -> None:
    client = Timed(training=1, measuring=0.5, grown=9)
    replies = client.rounds(6, limits={"grown": 5})
    assert {reply.error.reason for reply in replies} == {
        "the update is withheld: grown is 9, limit 5"
    }
    client.grown = 3
    answered = [reply.has_content() for reply in client.rounds(8, limits={"grown": 5})]
    assert answered == [False] * 2 + [True] * 6


def test_a_budget_leaves_other_messages_and_failed_training_alone() -> None:
    client = Timed(training=1, measuring=0.5)
    mod = Budgeted(GaugingMod(client.measure), clock=lambda: client.now)
    assert dict(mod(asked("evaluate"), client.context, trained).content["metrics"]) == {
        "num-examples": 5
    }

    def failed(message: Message, context: Context) -> Message:
        return Message(Error(0, "out of memory"), reply_to=message)

    assert mod(asked(), client.context, failed).error.reason == "out of memory"
    assert not client.context.state
    with pytest.raises(SpecError, match="share=0: give a number above 0"):
        Budgeted(GaugingMod(client.measure), share=0)


def test_flower_numbers_its_rounds_as_the_mod_reads_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for field in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(f"flwr.supercore.task_identity.TaskIdentity.{field}", 1)
    grid: Any = SimpleNamespace(get_node_ids=lambda: CLIENTS)
    messages = FedAvg().configure_train(5, ArrayRecord(STATE), ConfigRecord(), grid)
    assert [round_of(message) for message in messages] == [5, 5]


def test_the_gauge_measures_a_federation() -> None:
    """What `gleak.Gauge` gives is accepted by both wrappers."""
    model = nn.Sequential(nn.Linear(3, 2))
    gauge = gleak.Gauge(model, shape=(3,), batch_size=1, local_lr=0.1)
    start = {name: value.clone() for name, value in model.state_dict().items()}
    inputs, labels = torch.tensor([[0.1, 0.5, 0.9]]), torch.tensor([1])

    def local(message: Message, context: Any) -> Message:
        nn.functional.cross_entropy(model(inputs), labels).backward()
        torch.optim.SGD(model.parameters(), lr=0.1).step()
        found = {"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord({"n": 1})}
        return Message(RecordDict(found), reply_to=message)

    reply = GaugingMod(gauge, lambda _: (inputs, labels))(asked(state=start), None, local)
    metrics = dict(reply.content["metrics"])
    assert metrics["gleak-recovered"] == metrics["gleak-labels"] == 1
    assert metrics["gleak-explained"] == pytest.approx(1, abs=1e-3)
