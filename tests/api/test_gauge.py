"""What a gauge says of updates whose leak is known."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.linalg import lstsq

import gleak
from gleak.api import gauge as module
from gleak.captures.frameworks.observers import metrics_of_gauge, refusal
from gleak.core.errors import ArtifactError, IncompatibleError, SpecError
from gleak.models.parameters import independent_copy
from gleak.runtime.virtual_gpu import DEVICE, VirtualGPU

SHAPE, CLASSES, LR = (3, 8, 8), 4, 0.1
State = dict[str, Tensor]


@pytest.fixture(autouse=True)
def seeded() -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def dense() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 32), nn.ReLU(), nn.Linear(32, CLASSES))


def convolutional() -> nn.Module:
    layers = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten()
    return nn.Sequential(*layers, nn.Linear(144, CLASSES)).eval()


def trained(model: nn.Module, samples: int, steps: int = 1) -> tuple[State, State, Any]:
    """States before and after training, and the samples."""
    images = torch.rand(samples, *SHAPE, dtype=next(model.parameters()).dtype)
    truth = images, torch.arange(samples) % CLASSES
    before = {name: value.clone() for name, value in model.state_dict().items()}
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(truth[0]), truth[1]).backward()
        optimizer.step()
    return before, model.state_dict(), truth


def gauge_of(model: nn.Module, samples: int, steps: int = 1) -> gleak.Gauge:
    return gleak.Gauge(model, SHAPE, samples, LR, steps)


@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
@pytest.mark.parametrize("samples", [1, 3])
def test_a_dense_first_layer_gives_all(samples: int, precision: torch.dtype) -> None:
    model = dense().to(precision)
    before, after, truth = trained(model, samples)
    gauge = gauge_of(model, samples)
    seen_by_server = gauge(before, after)
    assert seen_by_server["gleak-explained"] > 0.99
    assert {"gleak-alarms", "gleak-explained"} == seen_by_server.keys()
    expected = {**seen_by_server, "gleak-labels": 1, "gleak-recovered": 1}
    assert gauge(before, after, truth) == pytest.approx(expected, abs=1e-6)


class Halved(nn.Module):
    def forward(self, logits: Tensor) -> Tensor:
        return logits / 2


class WithUnused(nn.Module):
    """A network with a layer that does not run."""

    def __init__(self, unused: nn.Module) -> None:
        super().__init__()
        self.network, self.unused = dense(), unused

    def forward(self, inputs: Tensor) -> Tensor:
        return self.network(inputs)


class Backwards(nn.Module):
    """A perceptron whose head is registered before its body."""

    def __init__(self) -> None:
        super().__init__()
        self.head, self.body = nn.Linear(32, CLASSES), nn.Linear(192, 32)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.body(inputs.flatten(1)).relu())


def normalised() -> nn.Module:
    layers = nn.Flatten(), nn.BatchNorm1d(192), nn.Linear(192, 32), nn.ReLU()
    return nn.Sequential(*layers, nn.Linear(32, CLASSES)).eval()


@pytest.mark.parametrize(
    "build",
    [
        lambda: dense().append(nn.LogSoftmax(1)),
        lambda: dense().append(Halved()),
        lambda: WithUnused(nn.Linear(4, 4)),
        lambda: WithUnused(nn.BatchNorm1d(4)),
        lambda: WithUnused(nn.PReLU()),
        Backwards,
        normalised,
    ],
)
def test_a_dense_layer_of_samples_gives_all_whatever_else_there_is(
    build: Callable[[], nn.Module],
) -> None:
    model = build()
    found = gauge_of(model, 3)(*trained(model, 3))
    assert found["gleak-explained"] > 0.99
    assert found["gleak-recovered"] == 1


def on_cpu(matrix: Tensor, *others: Tensor, driver: str) -> Any:
    assert {each.device.type for each in (matrix, *others)} == {"cpu"}
    return lstsq(matrix, *others, driver=driver)


@pytest.mark.filterwarnings("ignore:.*no-op:UserWarning")
@pytest.mark.parametrize("build", [dense, normalised, convolutional])
def test_a_network_on_a_gpu_is_measured_there(
    build: Callable[[], nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And least squares on the CPU, as LAPACK's method is not on a GPU."""
    model = build()
    gauge, updates = gauge_of(model, 2), trained(model, 2)
    monkeypatch.setattr(module, "prepared_copy", independent_copy)  # it takes no virtual parameters
    monkeypatch.setattr(module, "EXACT", 1.0)  # values are unknown, so every attack is tried
    monkeypatch.setattr(torch.linalg, "lstsq", on_cpu)
    with VirtualGPU(10**9) as gpu:
        gauge.model.to(DEVICE)
        found = gauge(*updates)
    assert gpu.fault is None
    assert found.keys() == {"gleak-alarms", "gleak-explained", "gleak-labels", "gleak-recovered"}


def test_a_convolution_gives_labels() -> None:
    model = convolutional()
    found = gauge_of(model, 2)(*trained(model, 2))
    assert found["gleak-labels"] == 1
    assert found["gleak-explained"] == found["gleak-recovered"] == 0


def test_labels_are_found_where_samples_are_not() -> None:
    """Several steps mix random images, which `cpa_edges` does not separate."""
    model = dense()
    found = gauge_of(model, 4, steps=5)(*trained(model, 4, steps=5))
    assert found["gleak-labels"] == 1
    assert found["gleak-recovered"] == 0
    assert 0 < found["gleak-explained"] < 0.9


def test_an_update_of_other_samples_recovers_none_of_these() -> None:
    model = dense()
    before, after, (inputs, labels) = trained(model, 2)
    others = inputs.flip(0, 3), (labels + 2) % CLASSES
    found = gauge_of(model, 2)(before, after, others)
    assert found["gleak-explained"] > 0.99
    assert found["gleak-recovered"] == found["gleak-labels"] == 0


def test_crafted_parameters_raise_alarms() -> None:
    wide = nn.Sequential(nn.Flatten(), nn.Linear(192, 64), nn.ReLU(), nn.Linear(64, 10))
    model = gleak.craft("fishing", wide, shape=SHAPE).model
    before, after, _ = trained(model, 2)
    assert gauge_of(model, 2)(before, after)["gleak-alarms"] >= 1


def test_several_steps_and_arrays_are_measured_and_nothing_changes() -> None:
    model = dense()
    before, after, truth = trained(model, 1, steps=3)
    arrays = [{name: value.numpy() for name, value in state.items()} for state in (before, after)]
    found = gauge_of(model, 1, steps=3)(*arrays, tuple(each.numpy() for each in truth))
    assert found["gleak-recovered"] == 1
    for name, value in model.state_dict().items():
        assert torch.equal(value, after[name])


@pytest.mark.parametrize(
    ("text", "build", "explained"),
    [
        (
            "sgd~momentum=0.9~weight_decay=0.01",
            lambda p: torch.optim.SGD(p, lr=LR, momentum=0.9, weight_decay=0.01),
            0.999,
        ),
        ("adam", lambda p: torch.optim.Adam(p, lr=LR), 0.0),
    ],
)
def test_clients_with_an_optimizer_are_measured(text: str, build: Any, explained: float) -> None:
    """One step of momentum shows its gradient; the samples of Adam's are not found here."""
    model = dense()
    images, labels = torch.rand(2, *SHAPE), torch.arange(2)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    optimizer = build(model.parameters())
    nn.functional.cross_entropy(model(images), labels).backward()
    optimizer.step()
    client = f"fedavg+batch_size=2+local_lr={LR}+optimizer={text}"
    found = gleak.Gauge(model, SHAPE, client=client)(before, model.state_dict(), (images, labels))
    assert explained <= found["gleak-explained"] <= 1
    assert found["gleak-labels"] == 1
    assert found["gleak-recovered"] == (explained > 0)


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"batch_size": 0}, SpecError, "batch_size"),
        ({"shape": (1, 8, 8)}, IncompatibleError, r"for samples of shape \(1, 8, 8\)"),
    ],
)
def test_a_gauge_that_cannot_measure_is_refused_when_made(
    fields: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        gleak.Gauge(**{"model": dense(), "shape": SHAPE, "batch_size": 1, "local_lr": LR, **fields})


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda b, a: (b, {n: v for n, v in a.items() if n != "1.bias"}), r"after: 1\.bias is mis"),
        (lambda b, a: ({n: v for n, v in b.items() if n != "1.bias"}, a), "not a state dict of"),
        (lambda b, a: (b, {n: v * float("nan") for n, v in a.items()}), "NaN or infinite"),
    ],
)
def test_states_of_something_else_are_named(spoil: Any, message: str) -> None:
    model = dense()
    before, after, _ = trained(model, 1)
    with pytest.raises(ArtifactError, match=message):
        gauge_of(model, 1)(*spoil(before, after))


FIRST_CALL = """
import sys
import torch
from tests.api.test_gauge import SHAPE, dense, gauge_of

before = dense().state_dict()
after = {name: 0.99 * value for name, value in before.items()}
gauge_of(dense(), 8)(before, after, (torch.rand(8, *SHAPE), torch.arange(8) % 4))
print("sympy" in sys.modules)
"""


@pytest.mark.slow
def test_the_first_call_imports_no_symbolic_algebra() -> None:
    """Which torch imports for some derivatives and for optimisers, of which a server needs none."""
    command = [sys.executable, "-c", FIRST_CALL]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout == "False\n"


def test_members_are_told_from_other_samples_of_the_client() -> None:
    """The update of one step on fewer samples than values determines who was in it."""
    model = dense()
    before, after, truth = trained(model, 16)
    others = torch.rand(300, *SHAPE), torch.arange(300) % CLASSES
    gauge = gauge_of(model, 16)
    found = gauge(before, after, truth, others)
    assert (found["gleak-members"], found["gleak-auc"]) == (1, 1)
    assert found.keys() == {*metrics_of_gauge(knows_truth=True, knows_others=True)}
    without = {"gleak-members", "gleak-auc"}
    assert gauge(before, after, truth).keys() == found.keys() - without


def test_too_few_others_are_said_and_not_failed(caplog: pytest.LogCaptureFixture) -> None:
    """Those that are among the samples of the round are none."""
    model = dense()
    before, after, (images, labels) = trained(model, 16)
    others = torch.cat([images, images[:3] / 2]), torch.cat([labels, labels[:3]])
    found = gauge_of(model, 16)(before, after, (images, labels), others)
    assert math.isnan(found["gleak-members"]) and math.isnan(found["gleak-auc"])
    assert found["gleak-labels"] > 0.9, "the others are measured"
    assert "16 samples of the update and 3 others are too few" in caplog.text


def test_others_need_the_truth() -> None:
    model = dense()
    before, after, truth = trained(model, 2)
    with pytest.raises(ArtifactError, match="others: give the truth"):
        gauge_of(model, 2)(before, after, None, truth)


def test_a_broadcast_is_audited_before_training() -> None:
    layers = nn.Linear(192, 64), nn.ReLU(), nn.Linear(64, 10)
    model = nn.Sequential(nn.Flatten(), *layers)
    gauge = gauge_of(model, 2)
    assert gauge.alarms(model.state_dict()) == []
    crafted = gleak.craft("fishing", model, shape=SHAPE).model.state_dict()
    assert gauge.alarms(crafted) == ["audit_bias"]
    assert refusal(gauge.alarms, crafted) == (
        "refused to train: audit_bias suspect crafted parameters"
    )
    assert refusal(gauge.alarms, model.state_dict()) == ""
    assert "cannot be audited" in refusal(gauge.alarms, {"weight": torch.zeros(1)})
