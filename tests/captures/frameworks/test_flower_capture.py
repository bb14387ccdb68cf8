"""Capture of a client of the form of Flower's quickstart, by its mod; skipped without Flower."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

pytestmark = pytest.mark.filterwarnings("ignore")
pytest.importorskip("flwr", reason="Flower is an extra, not installed: make test-flower")

from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict  # noqa: E402
from flwr.clientapp import ClientApp  # noqa: E402

from gleak.captures.frameworks.flower_capture import CapturingMod  # noqa: E402
from gleak.captures.round_folder import RoundFolder, recorded_fields  # noqa: E402
from tests.captures.frameworks.test_flower_mods import asked  # noqa: E402
from tests.captures.test_observed_training import network, samples, to_intensity, train  # noqa: E402


class Node:
    """What a mod needs of a client's context."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id


def train_with_momentum(message: Message, context: Any) -> Message:
    model = network()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    train(model, optimizer, *samples(), size=4)
    found = {
        "arrays": ArrayRecord(model.state_dict()),
        "metrics": MetricRecord({"num-examples": 8}),
    }
    return Message(RecordDict(found), reply_to=message)


def round_of(number: int) -> Message:
    return asked(state=network().state_dict(), **{"server-round": number})


def client(mod: CapturingMod) -> ClientApp:
    """An app as the quickstart makes it, but for the mod."""
    app = ClientApp(mods=[mod])
    app.train()(train_with_momentum)
    return app


def test_a_round_is_written_with_its_optimizer_and_samples(tmp_path: Path) -> None:
    app = client(CapturingMod(tmp_path, rounds=[2], samples=to_intensity))
    replies = [app(round_of(number), Node(node)) for number in (1, 2) for node in (5, 6)]
    files = RoundFolder(tmp_path / "round-2").files()
    assert [path.name for path in tmp_path.iterdir()] == ["round-2"]
    assert [path.stem for path in files.sent] == ["client-5", "client-6"]
    fields = {"batch_size": "8", "local_lr": "0.1", "local_steps": "2", "mini_batch": "4"}
    assert recorded_fields(files.sent) == {**fields, "optimizer": "sgd~momentum=0.9"}
    sent = replies[-1].content["arrays"].to_torch_state_dict()
    for name, value in load_file(files.sent[1]).items():
        assert torch.equal(value, sent[name])
        assert torch.equal(load_file(files.before)[name], network().state_dict()[name])
    truth = load_file(files.truth[0])
    torch.testing.assert_close(2 * truth["inputs"] - 1, samples()[0])
    assert torch.equal(truth["labels"], samples()[1])


def test_a_round_that_exists_is_left_as_it_is_and_the_training_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    app = client(CapturingMod(tmp_path))
    app(round_of(1), Node(5))
    before = (tmp_path / "round-1/client-5.safetensors").read_bytes()
    assert app(round_of(1), Node(5)).has_content()
    assert "round 1, client 5 is not observed" in caplog.text
    assert (tmp_path / "round-1/client-5.safetensors").read_bytes() == before


def test_a_training_that_is_not_seen_is_captured_without_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mod = CapturingMod(tmp_path)

    def elsewhere(message: Message, context: Any) -> Message:
        found = {"arrays": message.content["arrays"], "metrics": MetricRecord({})}
        return Message(RecordDict(found), reply_to=message)

    mod(round_of(1), Node(5), elsewhere)
    assert "no step of a torch.optim optimizer was seen" in caplog.text
    assert recorded_fields(RoundFolder(tmp_path / "round-1").files().sent) == {}
