"""`gleak.compute_update` and `gleak.defend`: equal to the workflow's simulated clients."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import gleak
from gleak.artifacts.model import Model
from gleak.artifacts.private import Private
from gleak.artifacts.update import Update
from gleak.core.errors import IncompatibleError
from gleak.core.registry import parse
from gleak.models.broadcast import load_network

Simulate = Callable[..., Path]
SEED = 1
"""The seed of the simulated clients."""
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
    ("client", "defense"),
    [
        ("fedsgd+batch_size=4", "none"),
        (STEPS, "gaussian+std=0.1+unit=gradient"),
        ("fedsgd+batch_size=4+loss=nll_raw", "soteria"),
        ("fedsgd+batch_size=4", "fedcdp"),
        ("fedsgd+batch_size=4", "secure_aggregation+clients=2+each=topk"),
        (f"{STEPS}+mini_batch=2", "qsgd"),
    ],
)
def test_the_update_is_that_of_the_simulated_client(
    model: str, client: str, defense: str, simulate: Simulate
) -> None:
    """Whose batch size may be left out."""
    folder = simulate(model=model, client=f"{client}+victims=1", defense=defense)
    truth = Private.read(folder / "private.h5")
    network = load_network(Model.read(folder / "model.h5"), "model.h5")
    for known in (client, client.replace("+batch_size=4", "")):
        found = gleak.compute_update(
            network, truth.inputs[0], truth.labels[0], client=known, defense=defense, seed=SEED
        )
        assert_equal(found, sent(folder))


@pytest.mark.parametrize("client", ["fedsgd+batch_size=4", STEPS])
def test_clients_may_normalise_by_their_batches(client: str, simulate: Simulate) -> None:
    model, by_batch = "vgg_small+width=4+hidden=8+norm=batch", "+batch_norm=training"
    folder = simulate(model=model, client=f"{client}+victims=1{by_batch}")
    truth = Private.read(folder / "private.h5")
    network = load_network(Model.read(folder / "model.h5"), "model.h5")
    samples = truth.inputs[0], truth.labels[0]
    found = gleak.compute_update(network, *samples, client=client + by_batch)
    assert_equal(found, sent(folder))
    with pytest.raises(IncompatibleError, match=r"cannot normalise by a batch of 1 .*more samples"):
        gleak.compute_update(Rows(), torch.rand(1, 5), [0], client=f"fedsgd{by_batch}")


class Rows(nn.Sequential):
    """A network of rows that normalises."""

    def __init__(self) -> None:
        super().__init__(nn.BatchNorm1d(5), nn.Linear(5, 2))


@pytest.mark.parametrize(
    ("defense", "client"),
    [
        ("none", "fedsgd"),
        ("gaussian+std=0.1", "fedsgd"),
        ("topk+keep=0.1", "fedsgd"),
        ("signsgd", "fedsgd"),
        ("low_rank+rank=1", "fedsgd"),
        ("laplace+std=0.1+unit=gradient", STEPS),
    ],
)
def test_a_defended_update_is_that_of_the_defended_client(
    defense: str, client: str, simulate: Simulate
) -> None:
    plain, defended = (
        sent(simulate(client=f"{client}+victims=1", defense=each)) for each in ("none", defense)
    )
    assert_equal(gleak.defend(defense, plain, seed=SEED, client=client), defended)


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
    update, defense = {"weight": torch.tensor([[0.6, 1.0]])}, "threshold+theta=0.5"
    first, second = (gleak.defend(defense, update, memory=memory)["weight"] for _ in range(2))
    assert memory
    assert not torch.equal(first, second)
    assert torch.equal(first, gleak.defend(defense, update)["weight"])


def test_the_callers_network_and_values_stay() -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(12, 3), nn.Dropout()).train()
    inputs = torch.rand(2, 3, 2, 2)
    before, state = copy.deepcopy(network.state_dict()), torch.get_rng_state()
    with torch.no_grad():
        update = gleak.compute_update(network, inputs, [0, 1])
    gleak.defend("gaussian", update)
    assert network.training
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("defense", ["soteria", "fedcdp", "secure_aggregation"])
def test_defences_that_need_samples_say_where_to_give_them(defense: str) -> None:
    with pytest.raises(IncompatibleError, match=rf"{defense} needs the client's samples.*compute_"):
        gleak.defend(defense, {"weight": torch.ones(2, 2)})


@pytest.mark.parametrize(
    "fields",
    [
        "optimizer=adam~beta1=0.8+schedule=cosine",
        "optimizer=sgd~momentum=0.9+state=kept+clip_norm=0.1",
        "order=shuffled+mini_batch=2+drop_last=true+clip_value=1e-3",
        "label_smoothing=0.1+proximal=0.5+autocast=bfloat16+loss=nll_raw",
    ],
)
def test_a_protocol_is_the_client_that_it_is_of(fields: str) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 8), nn.ReLU(), nn.Linear(8, 4))
    samples = torch.rand(3, 3, 4, 4), torch.tensor([0, 3, 1])
    client = parse("client", f"fedavg+batch_size=3+local_steps=3+local_lr=0.1+{fields}")
    found = gleak.compute_update(model, *samples, client=client.protocol)
    assert_equal(found, gleak.compute_update(model, *samples, client=str(client)))
