"""`gleak.compute_update` and `gleak.defend`: equal to the workflow's simulated clients."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import gleak
from gleak.artifacts.model import Model
from gleak.artifacts.private import Private
from gleak.artifacts.update import Update
from gleak.core.errors import ArtifactError, IncompatibleError, SpecError
from gleak.models.broadcast import load_network

Simulate = Callable[..., Path]
SEED = 1
"""The seed of the simulated clients."""
WEIGHTS = {"local_steps": 2, "local_lr": 0.1, "sends": "weights"}
STEPS = "fedavg+batch_size=4+local_steps=2+local_lr=0.1+sends=weights"


def sent(folder: Path) -> dict[str, Tensor]:
    update = Update.read(folder / "update.h5").update
    return {name: torch.from_numpy(each.decode()[0, 0]) for name, each in update.items()}


def assert_equal(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert list(found) == list(expected)
    for name, value in expected.items():
        assert torch.equal(found[name], value), name


@pytest.mark.parametrize("model", ["lenet+width=4", "vgg_small+width=8+hidden=24+dropout=0.3"])
@pytest.mark.parametrize(
    ("client", "defense", "known"),
    [
        ("fedsgd+batch_size=4", "none", {}),
        (STEPS, "gaussian+std=0.1+unit=gradient", WEIGHTS),
        ("fedsgd+batch_size=4+loss=nll_raw", "soteria", {"loss": "nll_raw"}),
        ("fedsgd+batch_size=4", "fedcdp", {}),
        ("fedsgd+batch_size=4", "secure_aggregation+clients=2+each=topk", {}),
        (f"{STEPS}+mini_batch=2", "qsgd", {**WEIGHTS, "mini_batch": 2}),
    ],
)
def test_the_update_is_that_of_the_simulated_client(
    model: str, client: str, defense: str, known: dict[str, Any], simulate: Simulate
) -> None:
    folder = simulate(model=model, client=f"{client}+victims=1", defense=defense)
    truth = Private.read(folder / "private.h5")
    network = load_network(Model.read(folder / "model.h5"), "model.h5")
    found = gleak.compute_update(
        network, truth.inputs[0], truth.labels[0], defense=defense, seed=SEED, **known
    )
    assert_equal(found, sent(folder))


@pytest.mark.parametrize(("client", "known"), [("fedsgd+batch_size=4", {}), (STEPS, WEIGHTS)])
def test_clients_may_normalise_by_their_batches(
    client: str, known: dict[str, Any], simulate: Simulate
) -> None:
    model = "vgg_small+width=4+hidden=8+norm=batch"
    folder = simulate(model=model, client=f"{client}+victims=1+batch_norm=training")
    truth = Private.read(folder / "private.h5")
    network = load_network(Model.read(folder / "model.h5"), "model.h5")
    samples = truth.inputs[0], truth.labels[0]
    found = gleak.compute_update(network, *samples, batch_norm="training", **known)
    assert_equal(found, sent(folder))
    with pytest.raises(IncompatibleError, match=r"cannot normalise by a batch of 1 .*more samples"):
        gleak.compute_update(Rows(), torch.rand(1, 5), [0], batch_norm="training")


class Rows(nn.Sequential):
    """A network of rows that normalises."""

    def __init__(self) -> None:
        super().__init__(nn.BatchNorm1d(5), nn.Linear(5, 2))


@pytest.mark.parametrize(
    ("defense", "client", "known"),
    [
        ("none", "fedsgd", {}),
        ("gaussian+std=0.1", "fedsgd", {}),
        ("topk+keep=0.1", "fedsgd", {}),
        ("signsgd", "fedsgd", {}),
        ("low_rank+rank=1", "fedsgd", {}),
        ("laplace+std=0.1+unit=gradient", STEPS, WEIGHTS),
    ],
)
def test_a_defended_update_is_that_of_the_defended_client(
    defense: str, client: str, known: dict[str, Any], simulate: Simulate
) -> None:
    plain, defended = (
        sent(simulate(client=f"{client}+victims=1", defense=each)) for each in ("none", defense)
    )
    assert_equal(gleak.defend(defense, plain, seed=SEED, **known), defended)


def test_containers_are_kept() -> None:
    values = [torch.ones(2, 2), None, torch.ones(3, dtype=torch.float64)]
    found = gleak.defend("gaussian", values)
    assert isinstance(found, list)
    assert found[1] is None
    assert [value.dtype for value in found if value is not None] == [torch.float32, torch.float64]
    assert isinstance(gleak.defend("none", tuple(values)), tuple)
    assert list(gleak.defend("none", {"b": values[0], "a": None})) == ["b", "a"]
    assert isinstance(gleak.defend("none", [np.ones(3)])[0], np.ndarray)


def test_what_was_not_sent_is_remembered_if_asked_for() -> None:
    memory: dict[str, Tensor] = {}
    update = {"weight": torch.tensor([[0.6, 1.0]])}
    defense = "threshold+theta=0.5"
    first = gleak.defend(defense, update, memory=memory)
    second = gleak.defend(defense, update, memory=memory)
    assert memory
    assert not torch.equal(first["weight"], second["weight"])
    assert torch.equal(first["weight"], gleak.defend(defense, update)["weight"])


def test_the_callers_network_and_values_stay() -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(12, 3), nn.Dropout()).train()
    before, state = copy.deepcopy(network.state_dict()), torch.get_rng_state()
    with torch.no_grad():
        update = gleak.compute_update(
            network, torch.rand(2, 3, 2, 2, generator=torch.Generator()), [0, 1]
        )
    gleak.defend("gaussian", update)
    assert network.training
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("defense", ["soteria", "fedcdp", "secure_aggregation"])
def test_defences_that_need_samples_say_where_to_give_them(defense: str) -> None:
    with pytest.raises(IncompatibleError, match=rf"{defense} needs the client's samples.*compute_"):
        gleak.defend(defense, {"weight": torch.ones(2, 2)})


@pytest.mark.parametrize(
    ("gradients", "text"),
    [
        (torch.ones(3), "expected tensors by name or in the order"),
        ({"bias": torch.tensor([torch.nan])}, "gradients: bias contains 1 values that are NaN"),
        (["x"], "gradients: 0: not a tensor of numbers"),
    ],
)
def test_values_that_are_no_update_are_named(gradients: Any, text: str) -> None:
    with pytest.raises(ArtifactError, match=text):
        gleak.defend("none", gradients)


def test_a_rate_is_needed_where_numbers_are_converted() -> None:
    with pytest.raises(SpecError, match="local_lr is missing"):
        gleak.defend("gaussian+unit=gradient", [torch.ones(3)], sends="weights")


@pytest.mark.parametrize(
    ("inputs", "labels", "text"),
    [
        (torch.rand(2, 12), [0, 3], r"labels: torch.int64 values from 0 to 3, expected .*0 to 2"),
        (torch.rand(2, 12), [0], r"labels: shape \(1,\), expected \(2,\)"),
        (torch.rand(2, 12) - 1, [0, 1], r"expected intensities in \[0, 1\]"),
        (torch.rand(12), [0], r"inputs: shape \(12,\), expected \(N, \*shape\)"),
    ],
)
def test_samples_that_do_not_fit_are_named(inputs: Tensor, labels: list[int], text: str) -> None:
    with pytest.raises(ArtifactError, match=text):
        gleak.compute_update(nn.Sequential(nn.Linear(12, 3)), inputs, labels)
