"""Weight decay is no crafting: what it leaves raises no alarm, and crafting on top of it does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from gleak.artifacts.dataset import Dataset
from gleak.artifacts.model import Model
from gleak.core.registry import parse
from gleak.metrics.audits.alarms import audits
from gleak.metrics.audits.base import Broadcast
from gleak.models.broadcast import load_network, with_state
from tests.metrics.subjects import fresh_model, train_split

CLASSES, SHAPE = 10, (1, 16, 16)
BORDER = 2
DENSE = "fc2+hidden=64"
CRAFTED = ("lenet5", "vgg_small+width=16+hidden=64")
CRAFTINGS = ("fishing", "mkor", "mkor+hiding=naive", "mkor+sink=4")


@pytest.fixture(scope="module")
def data() -> Dataset:
    """Ten patterns in noise, inside a border that is always zero."""
    random = np.random.default_rng(0)
    patterns = random.uniform(0, 1, (CLASSES, *SHAPE))
    patterns = patterns[np.arange(200) % CLASSES]
    pixels = 255 * (0.6 * patterns + 0.4 * random.uniform(0, 1, (200, *SHAPE)))
    inside = np.zeros(SHAPE, dtype=bool)
    inside[:, BORDER:-BORDER, BORDER:-BORDER] = True
    return train_split(np.where(inside, pixels, 0), CLASSES)


def decayed(spec: str, data: Dataset, steps: int) -> Model:
    """Trained by Adam, whose decay shrinks every weight that no sample trains."""
    fresh, random = fresh_model(spec, SHAPE, CLASSES), np.random.default_rng(0)
    network = load_network(fresh, "it").train()
    inputs, labels = torch.from_numpy(data.samples("train")), torch.from_numpy(data.train_labels)
    optimizer = torch.optim.Adam(network.parameters(), lr=2e-3, weight_decay=0.02)
    for _ in range(steps):
        batch = torch.from_numpy(random.integers(len(labels), size=16))
        optimizer.zero_grad()
        functional.cross_entropy(network(inputs[batch]), labels[batch]).backward()
        optimizer.step()
    return with_state(fresh, network)


@pytest.fixture(scope="module")
def honest(data: Dataset) -> Model:
    """A dense network after weight decay."""
    return decayed(DENSE, data, 400)


def alarming(model: Model, data: Dataset | None) -> set[str]:
    broadcast = Broadcast(model, data)
    return {audit.name for audit in audits() if audit.alarms(broadcast)}


def faint(lines: np.ndarray) -> float:
    """The share of columns whose median magnitude is below 3% of the typical one."""
    medians = np.median(np.abs(lines), axis=0)
    return float((medians < 0.03 * np.median(medians[medians > 0])).mean())


@pytest.mark.parametrize("tried", [True, False])
def test_inputs_that_are_always_zero_raise_no_alarm(honest: Model, data: Dataset, tried: bool):
    """Their columns are far fainter than others, as the columns of crafted paths are."""
    assert faint(honest.parameters["1.weight"][:, data.train_inputs.any(axis=0).ravel()]) == 0
    assert faint(honest.parameters["1.weight"]) > 0.3
    assert alarming(honest, data if tried else None) == set()


@pytest.mark.parametrize("size", [1.0, 1e-3])
def test_small_pairs_that_the_next_layer_amplifies_are_found_by_samples(
    honest: Model, data: Dataset, size: float
):
    """Without samples they are taken for neurons that decayed."""
    parameters = {name: values.copy() for name, values in honest.parameters.items()}
    for name in ("1.weight", "1.bias"):
        parameters[name][:10] *= size
        parameters[name][10:20] = -parameters[name][:10]
    parameters["3.weight"][:, :20] /= size
    crafted = replace(honest, parameters=parameters)
    assert "audit_parallel" in alarming(crafted, data)
    assert ("audit_parallel" in alarming(crafted, None)) == (size == 1)


@settings(max_examples=15)
@given(
    seed=st.integers(0, 10**6),
    count=st.integers(1, 30),
    size=st.sampled_from([1e-8, 1e-2, 1.0, 100.0]),
    kind=st.sampled_from(["noise", "pairs", "paths", "zeros"]),
)
def test_neurons_that_are_never_active_change_no_verdict(
    honest: Model, data: Dataset, seed: int, count: int, size: float, kind: str
):
    random = np.random.default_rng(seed)
    rows = size * random.normal(size=(count, honest.parameters["1.weight"].shape[1]))
    columns = size * random.normal(size=(CLASSES, count))
    if kind == "pairs":
        rows[1::2] = -rows[: count // 2 * 2 : 2]
    if kind in {"paths", "zeros"}:
        rows[:, 1:] *= 1e-6 if kind == "paths" else 0
        columns[1:] *= 1e-6 if kind == "paths" else 0
    for model, expected in ((honest, set()), (fished(honest), {"audit_bias", "audit_dominance"})):
        assert alarming(with_dead(model, rows, columns), data) == expected


def fished(model: Model) -> Model:
    return parse("crafting", "fishing").craft(model, 0).model


def with_dead(model: Model, rows: np.ndarray, columns: np.ndarray) -> Model:
    """A network with more hidden neurons, whose biases keep them from being active."""
    width = len(model.parameters["1.weight"]) + len(rows)
    never = -1.0 - np.abs(rows).sum(axis=1)
    parameters = {
        "1.weight": np.concatenate([model.parameters["1.weight"], rows]),
        "1.bias": np.concatenate([model.parameters["1.bias"], never]),
        "3.weight": np.concatenate([model.parameters["3.weight"], columns], axis=1),
        "3.bias": model.parameters["3.bias"],
    }
    values = {name: each.astype(np.float32) for name, each in parameters.items()}
    return replace(model, model=f"fc2+hidden={width}", parameters=values)


@pytest.mark.slow
@pytest.mark.parametrize("spec", [CRAFTED[0], pytest.param(CRAFTED[1], marks=pytest.mark.slow)])
def test_every_crafting_is_found_on_fresh_and_on_decayed_networks(spec: str, data: Dataset):
    for model in (fresh_model(spec, SHAPE, CLASSES), decayed(spec, data, 60)):
        assert alarming(model, data) == alarming(model, None) == set()
        for crafting in CRAFTINGS:
            crafted = parse("crafting", crafting).craft(model, 0).model
            assert alarming(crafted, data), f"{crafting} with samples"
            assert alarming(crafted, None), f"{crafting} without samples"
