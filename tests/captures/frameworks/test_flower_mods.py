"""The mods of Flower clients, without a network; skipped without Flower."""

from __future__ import annotations

import math
from dataclasses import dataclass
from time import time
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import gleak
from gleak.captures.frameworks.observers import metrics_of_gauge
from gleak.core.errors import ArtifactError, IncompatibleError, SpecError

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

from gleak.captures.frameworks.flower import mean_of_measured  # noqa: E402
from gleak.captures.frameworks.flower_mods import (  # noqa: E402
    Budgeted,
    Deferred,
    GaugingMod,
    Periodic,
    RefusingMod,
    round_of,
)
from tests.captures.frameworks.test_flower import CLIENTS, NAMES, STATE, after, as_list, shift  # noqa: E402


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


def failing(*_: Any) -> dict[str, float]:
    """A measure of an update that is not finite."""
    raise ArtifactError("after: weight contains values that are NaN")


def test_an_update_that_cannot_be_measured_is_sent_unless_there_are_limits(
    caplog: pytest.LogCaptureFixture,
) -> None:
    mod, of_gauge, of_shift = GaugingMod(shift), metrics_of_gauge(False), ("grown", "known")
    for measure, names in ((failing, of_gauge), (shift, of_shift), (failing, of_shift)):
        mod.measure = measure
        reply = mod(asked(), None, trained)
        found = dict(reply.content["metrics"])
        assert found.keys() == {"num-examples", *names}
        assert all(math.isnan(found[name]) == (measure is failing) for name in names)
        assert reply.content["arrays"] == ArrayRecord(after(2))
    assert "client 11 is not observed: after: weight contains values that are NaN" in caplog.text
    named = GaugingMod(failing, metrics=["grown"])(asked(), None, trained)
    assert {*named.content["metrics"]} == {"num-examples", "grown"}
    withheld = GaugingMod(failing, limits={"grown": 9})(asked(), None, trained)
    assert withheld.error.reason == "the update is withheld: grown is nan, limit 9"


@pytest.mark.parametrize("part", ["received", "sent", "truth"])
def test_no_part_of_a_measurement_ends_the_training(part: str) -> None:
    mod = GaugingMod(shift, failing if part == "truth" else None, names=NAMES)
    few = ArrayRecord(as_list(STATE)[:1])

    def train(message: Message, context: Any) -> Message:
        reply = trained(message, context)
        if part == "sent":
            reply.content["arrays"] = few
        return reply

    message = asked()
    if part == "received":
        message.content["arrays"] = few
    found = mod(message, None, train).content["metrics"]
    assert math.isnan(found["gleak-explained"])


def test_other_messages_pass_a_mod() -> None:
    reply = GaugingMod(shift, limits={"grown": 0})(asked("evaluate"), None, trained)
    assert dict(reply.content["metrics"]) == {"num-examples": 5}


def test_a_mod_of_some_rounds_is_left_out_of_the_others() -> None:
    sparing = Periodic(GaugingMod(shift), every=3)
    replies = [sparing(asked(**{"server-round": n}), None, trained) for n in range(1, 8)]
    measured = [n for n, reply in enumerate(replies, 1) if "grown" in reply.content["metrics"]]
    assert measured == [1, 4, 7]
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

    def rounds(self, number: int, first: Deferred | None = None, **options: Any) -> list[Message]:
        """Replies of so many rounds, of which an eighth of the time may be measuring."""
        measuring = GaugingMod(self.measure, **options)
        mod = Budgeted(measuring, share=0.125, clock=lambda: self.now, first=first)
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
    reasons = {reply.error.reason for reply in client.rounds(6, limits={"grown": 5})}
    assert reasons == {"the update is withheld: grown is 9, limit 5"}
    client.grown = 3
    answered = [reply.has_content() for reply in client.rounds(8, limits={"grown": 5})]
    assert answered == [False] * 2 + [True] * 6


@pytest.mark.parametrize(("expected", "begins"), [(0.25, 2), (0.5, 4), (1.0, 8)])
def test_a_deferred_measurement_is_made_when_the_share_pays_for_what_it_is_expected_to_take(
    expected: float, begins: int
) -> None:
    client = Timed(training=1, measuring=min(expected, 0.5))
    replies = client.rounds(40, Deferred(expected, ["grown"]))
    ages, found = metrics(replies, "gleak-age"), metrics(replies, "grown")
    assert all(map(math.isnan, (*ages[:begins], *found[:begins])))
    assert ages[begins] == 0
    assert found[begins:] == [2] * (40 - begins)
    assert metrics(replies, "gleak-overhead")[:begins] == [0] * begins
    assert max(metrics(replies, "gleak-overhead")) <= 0.125


def test_a_deferred_measurement_exceeds_the_share_by_the_error_of_the_estimate_only() -> None:
    replies = Timed(training=1, measuring=0.75).rounds(60, Deferred(0.5, ["grown"]))
    overheads = enumerate(metrics(replies, "gleak-overhead"), start=1)
    excess = [(overhead - 0.125) * rounds for rounds, overhead in overheads]
    assert max(excess) == pytest.approx(0.75 - 0.5 - 0.125)
    assert metrics(replies, "gleak-age").index(0, 5) == 12


def test_clients_that_have_and_have_not_measured_are_aggregated() -> None:
    first = Deferred(0.25, ["grown"])
    replies = [Timed(training=time, measuring=0.25).rounds(4, first)[-1] for time in (1, 0.125)]
    assert metrics(replies, "grown")[0] == 2
    _, of_flower = FedAvg().aggregate_train(4, replies)
    assert math.isnan(of_flower["grown"])
    _, of_measured = FedAvg(train_metrics_aggr_fn=mean_of_measured).aggregate_train(4, replies)
    assert of_measured["grown"] == 2


def test_limits_begin_with_the_first_measurement() -> None:
    client = Timed(training=1, measuring=0.25)
    replies = client.rounds(4, Deferred(0.25, ["grown"]), limits={"grown": 1})
    assert [reply.has_content() for reply in replies] == [True, True, False, False]


@pytest.mark.parametrize("first", [None, Deferred(0.25, ["grown"])])
def test_a_budget_keeps_the_names_of_what_cannot_be_measured(first: Deferred | None) -> None:
    client = Timed(training=1, measuring=0.25)
    if first is None:
        client.rounds(1)
    client.measure = failing
    replies = client.rounds(9, first)
    names = {tuple(reply.content["metrics"]) for reply in replies}
    assert names == {("num-examples", "grown", "gleak-age", "gleak-overhead")}
    assert math.isnan(metrics(replies, "grown")[-1])
    assert not client.rounds(1, first, limits={"grown": 9})[-1].has_content()
    client.measure = lambda *_: {"grown": 3}
    assert metrics(client.rounds(9, first, limits={"grown": 9})[-1:], "grown") == [3]


def test_names_that_were_announced_are_those_that_are_measured() -> None:
    client = Timed(training=1, measuring=0.25)
    with pytest.raises(SpecError, match=r"metrics size are sent .*; give metrics=\('grown',\)"):
        client.rounds(4, Deferred(0.25, ["size"]))
    with pytest.raises(SpecError, match="expected=0: give the seconds of a measurement"):
        Deferred(0)


@pytest.mark.parametrize("truth", [None, lambda context: (1, 2)])
def test_the_metrics_of_a_gauge_are_announced_unless_others_are(truth: Any) -> None:
    (reply,) = Timed(training=1, measuring=1).rounds(1, Deferred(), truth=truth)
    _, *announced = [*reply.content["metrics"]][:-2]
    assert tuple(announced) == metrics_of_gauge(knows_truth=truth is not None)


def test_a_budget_leaves_other_messages_and_failed_training_alone() -> None:
    client = Timed(training=1, measuring=0.5)
    mod = Budgeted(GaugingMod(client.measure), clock=lambda: client.now)
    evaluated = mod(asked("evaluate"), client.context, trained).content["metrics"]
    assert dict(evaluated) == {"num-examples": 5}

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
    found = dict(reply.content["metrics"])
    assert found.keys() == {"n", *metrics_of_gauge(knows_truth=True)}
    assert found["gleak-recovered"] == found["gleak-labels"] == 1
    assert found["gleak-explained"] == pytest.approx(1, abs=1e-3)


def test_a_client_refuses_to_train_on_suspicious_parameters() -> None:
    def never(*_: Any) -> Message:
        raise AssertionError("it trains")

    reply = RefusingMod(lambda state: ["audit_bias", "audit_rank"])(asked(), None, never)
    assert reply.error.code == 20_002
    assert reply.error.reason == (
        "refused to train: audit_bias, audit_rank suspect crafted parameters"
    )
    assert RefusingMod(lambda state: [])(asked(), None, trained).has_content()
    assert RefusingMod(lambda state: ["audit_bias"])(asked("evaluate"), None, trained).has_content()


def test_other_samples_are_given_to_the_measure_beside_those_of_the_round() -> None:
    def measure(before: Any, after: Any, truth: Any, others: Any) -> dict[str, float]:
        return {"sum": float(truth[0] + others[0])}

    mod = GaugingMod(measure, lambda context: (1, 2), others=lambda context: (3, 4))
    assert dict(mod(asked(), None, trained).content["metrics"])["sum"] == 4
    assert "gleak-members" in GaugingMod(failing, truth=max, others=max).metrics
    with pytest.raises(SpecError, match="needs truth"):
        GaugingMod(measure, others=lambda context: (3, 4))
