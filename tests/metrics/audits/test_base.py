"""Contract of all audits: no alarm on honest parameters, an alarm on crafted ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gleak.artifacts.dataset import Dataset
from gleak.core.errors import IncompatibleError
from gleak.core.registry import parse
from gleak.metrics.audits.alarms import audits
from gleak.metrics.audits.base import AuditSpec, Broadcast, Finding
from gleak.metrics.base import MetricUnavailable
from tests.metrics.subjects import model_of

Parameters = dict[str, np.ndarray]
Craft = Callable[[Parameters, np.random.Generator], None]
AUDITS = {audit.name: audit for audit in audits()}
OF_THE_CLIENT = {"audit_dominance", "audit_negligible", "audit_isolation", "audit_reference"}
OF_SAMPLES = {"audit_direction", "audit_balance", "audit_activity"}
"""Audits that need samples or a reference, and audits of layers that take samples."""
OF_PARAMETERS = sorted(set(AUDITS) - OF_THE_CLIENT - OF_SAMPLES)
WIDTHS = {
    "0": (32, 3, 3, 3),
    "2": (64, 32, 3, 3),
    "5": (256, 1024),
    "7": (128, 256),
    "9": (10, 128),
}
CLASSES = 10


def fresh(seed: int, scale: float = 1.0) -> Parameters:
    """Two convolutions and three dense layers as torch initialises them."""
    random, parameters = np.random.default_rng(seed), {}
    for name, shape in WIDTHS.items():
        bound = scale / np.sqrt(np.prod(shape[1:]))
        for kind, size in (("weight", shape), ("bias", shape[:1])):
            parameters[f"{name}.{kind}"] = random.uniform(-bound, bound, size).astype(np.float32)
    return parameters


def trained(parameters: Parameters, random: np.random.Generator) -> None:
    """A strong direction in every layer, heavy tails, biases that moved: what learning does."""
    for values in parameters.values():
        spread = values.std()
        if values.ndim > 1:
            shape = (len(values), *[1] * (values.ndim - 1))
            values += 2 * spread * random.normal(size=shape) * random.normal(size=values.shape[1:])
        values += spread * random.laplace(size=values.shape)


def paired_neurons(parameters: Parameters, random: np.random.Generator) -> None:
    """MKOR equations 10 and 11."""
    for name in ("5.weight", "5.bias"):
        parameters[name][1 : 2 * CLASSES : 2] = -0.7 * parameters[name][: 2 * CLASSES : 2]


def decoupled_columns(parameters: Parameters, random: np.random.Generator) -> None:
    """MKOR equation 12: noise, and one path of each class."""
    weights = parameters["7.weight"]
    weights[:, : 2 * CLASSES] = random.normal(0, 1e-6, (len(weights), 2 * CLASSES))
    for label in range(CLASSES):
        weights[label, 2 * label : 2 * label + 2] = weights[label].max()


def one_hot_kernels(parameters: Parameters, random: np.random.Generator) -> None:
    """MKOR equation 20."""
    weights = parameters["2.weight"]
    weights[:24, :6] = random.normal(0, 1e-6, weights[:24, :6].shape)
    weights[np.arange(24), np.arange(24) // 4, 1, 1] = 1


def sink(parameters: Parameters, random: np.random.Generator) -> None:
    parameters["9.bias"][3] += 4


def naive(parameters: Parameters, random: np.random.Generator) -> None:
    """All rows of the first dense layer equal; later ones zero beside the paths."""
    parameters["5.weight"][:] = 1 / 1024
    for name in ("7.weight", "9.weight"):
        parameters[name][:] = np.eye(*parameters[name].shape)


def fished(parameters: Parameters, random: np.random.Generator) -> None:
    parameters["9.weight"][1:] = 0
    parameters["9.bias"][1:] = 100


def imprinted(parameters: Parameters, random: np.random.Generator) -> None:
    """Two dense layers in front of the rest: one reads samples off, one gives them back."""
    rest = dict(parameters)
    parameters.clear()
    for name, shape in {"read": (64, 3 * 32 * 32), "give": (3 * 32 * 32, 64)}.items():
        parameters[f"{name}.weight"] = random.normal(size=shape).astype(np.float32)
    parameters.update(rest)


FOUND_BY: dict[Craft, set[str]] = {
    trained: set(),
    paired_neurons: {"parallel", "spectrum"},
    decoupled_columns: {"columns"},
    one_hot_kernels: {"outliers"},
    sink: {"bias"},
    naive: {"zeros"},
    fished: {"bias"},
    imprinted: {"size"},
}


def crafted(craft: Craft, seed: int = 0) -> Broadcast:
    parameters = fresh(seed)
    craft(parameters, np.random.default_rng(seed + 1))
    return Broadcast(model_of(parameters))


def alarming(broadcast: Broadcast) -> set[str]:
    return {name.removeprefix("audit_") for name in AUDITS if AUDITS[name].alarms(broadcast)}


@pytest.mark.parametrize(("seed", "scale"), [(0, 1.0), (1, 1.0), (2, 20.0)])
def test_fresh_parameters_alarm_no_audit(seed: int, scale: float):
    assert alarming(Broadcast(model_of(fresh(seed, scale)))) == set()


@pytest.mark.parametrize("craft", FOUND_BY, ids=lambda craft: craft.__name__)
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_crafted_parameters_alarm_their_audits(craft: Craft, seed: int):
    assert alarming(crafted(craft, seed)) == FOUND_BY[craft]


def test_every_audit_is_needed():
    assert set.union(*FOUND_BY.values()) == {name.removeprefix("audit_") for name in OF_PARAMETERS}


@pytest.mark.parametrize("name", OF_PARAMETERS)
@pytest.mark.parametrize(
    "craft", [trained, imprinted, paired_neurons], ids=lambda craft: craft.__name__
)
def test_a_value_is_the_worst_layers_statistic_in_limits(name: str, craft: Craft):
    audit, broadcast = AUDITS[name], crafted(craft)
    findings = audit.examine(broadcast)
    worst = max(finding.statistic for finding in findings)
    assert audit.measure(broadcast) * audit.limit == pytest.approx(worst)
    assert (audit.measure(broadcast) > 1) == audit.alarms(broadcast)
    assert {finding.layer for finding in findings} <= {*WIDTHS, "read", "give"}
    assert all(finding.text for finding in findings)


@pytest.mark.parametrize("name", sorted(set(OF_PARAMETERS) - {"audit_spectrum"}))
@given(order=st.permutations(range(40)))
def test_the_order_of_neurons_changes_nothing(name: str, order: list[int]):
    """The spectrum is computed of a sample of neurons, which changes with their order."""
    random = np.random.default_rng(0)
    first, second = random.normal(size=(40, 80)), random.normal(size=(36, 40))
    first[1:4], first[4] = -first[0], 0
    second[:, 2:8] = 1e-9 * second[:, 2:8]
    second[range(6), range(2, 8)] = 1
    kernels = random.normal(size=(40, 6, 3, 3))
    kernels[:9, 2, 1, 1] = 40
    plain = {"k.weight": kernels, "a.weight": first, "b.weight": second, "b.bias": second[:, 9]}
    shuffled = {"k.weight": kernels[order], "a.weight": first[order], "b.weight": second[:, order]}
    values = [
        AUDITS[name].measure(Broadcast(model_of(plain | each, classes=36)))
        for each in (shuffled, plain)
    ]
    assert values[0] == pytest.approx(values[1], rel=1e-9)
    assert values[1] > 0 or name in {"audit_zeros", "audit_size"}


@pytest.mark.parametrize("name", AUDITS)
def test_parameters_without_layers_say_nothing(name: str):
    broadcast = Broadcast(model_of({"0.weight": np.ones(5, np.float32)}))
    assert not AUDITS[name].alarms(broadcast)
    with pytest.raises(MetricUnavailable):
        AUDITS[name].measure(broadcast)


def test_layers_have_inputs_and_outputs():
    parameters = {**fresh(0), "norm.weight": np.ones(4, np.float32)}
    layers = Broadcast(model_of(parameters)).layers
    assert [layer.name for layer in layers] == list(WIDTHS)
    assert [layer.dense for layer in layers] == [False, False, True, True, True]
    assert layers[1].weights.shape == (64, 32 * 9)
    np.testing.assert_array_equal(layers[4].biases, parameters["9.bias"])


def test_findings_are_made_once():
    class Counting(AuditSpec):
        limit: float = 1.0

        def examine(self, broadcast: Broadcast) -> list[Finding]:
            calls.append(broadcast)
            return [Finding("a", 0.5, "text")]

    calls: list[Broadcast] = []
    broadcast = Broadcast(model_of({}))
    assert [Counting().measure(broadcast) for _ in range(2)] == [0.5, 0.5]
    assert calls == [broadcast]


def test_samples_must_be_those_of_the_model(images: Dataset):
    model = model_of(fresh(0), input_shape=np.array(images.shape), classes=images.classes)
    assert Broadcast(model, images).samples is images
    for other in ({"classes": 3}, {"input_shape": np.array([1, 8, 8])}):
        with pytest.raises(IncompatibleError, match="dataset tiny"):
            Broadcast(replace(model, **other), images)


def test_of_tables_the_size_says_nothing():
    with pytest.raises(MetricUnavailable, match="rows"):
        AUDITS["audit_size"].measure(Broadcast(model_of(fresh(0), modality="tabular")))


def perceptron(*widths: int) -> dict[str, tuple[int, ...]]:
    return {str(at): widths[at : at + 2][::-1] for at in range(len(widths) - 1)}


@pytest.mark.parametrize("front", [(), (3072, 64, 3072), (3072, 4000, 3072)])
@pytest.mark.parametrize(
    "rest",
    [
        perceptron(3072, 512, 10),
        perceptron(3072, 4000, 10),
        perceptron(3072, 512, 4096, 10),
        perceptron(3072, 3072, 10),
        {"conv": (16, 3, 3, 3), **perceptron(400, 4096, 10)},
        {"conv": (16, 3, 3, 3), **perceptron(32, 2048), "last": (16, 16, 3, 3)},
    ],
    ids=["narrow", "wide", "wider", "square", "convolutional", "squeeze and excitation"],
)
def test_the_size_is_that_of_layers_which_give_a_sample_back(
    front: tuple[int, ...], rest: dict[str, tuple[int, ...]]
) -> None:
    shapes = {f"front.{name}": shape for name, shape in perceptron(*front).items()} | rest
    parameters = {f"{name}.weight": np.ones(shape, np.float32) for name, shape in shapes.items()}
    broadcast = Broadcast(model_of(parameters))
    hidden = front == (3072, 4000, 3072) and "conv" not in rest
    assert AUDITS["audit_size"].alarms(broadcast) == (bool(front) and not hidden)


def test_alarms_are_counted():
    for craft in (sink, trained):
        assert parse("metric", "audit_alarms").measure(crafted(craft)) == len(FOUND_BY[craft])


@pytest.mark.parametrize("first", [0, 1])
def test_a_statistic_that_is_not_finite_alarms(monkeypatch: pytest.MonkeyPatch, first: int):
    """Overflowing gradients are no way to hide, wherever the layer stands."""
    audit = AUDITS["audit_bias"]
    findings = [Finding("9", float("nan"), "no number"), Finding("5", 0.1, "small")]
    told = findings[::-1] if first else findings
    monkeypatch.setattr(type(audit), "examine", lambda *_: told)
    broadcast = Broadcast(model_of(fresh(0)))
    assert audit.alarms(broadcast)
    assert audit.worst(broadcast).layer == "9"
    assert audit.measure(broadcast) == float("inf")
