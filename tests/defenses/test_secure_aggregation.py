"""What the server reads of a sum, beside what it would read of each client."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from gleak.artifacts.model import Model
from gleak.artifacts.private import Private
from gleak.artifacts.update import Update
from gleak.core.errors import IncompatibleError, SpecError
from gleak.core.registry import parse
from gleak.models.broadcast import load_network
from gleak.simulation.victims import relative_error
from gleak.studies.cell import LEVELS, Cell

Simulate = Callable[..., Path]


def seen(simulate: Simulate, client: str, defense: str) -> tuple[dict[str, np.ndarray], Private]:
    """Of each parameter what the server reads, Shape (V, *shape); and the truth."""
    folder = simulate(client=client, defense=defense)
    update = Update.read(folder / "update.h5").update
    values = {name: encoded.decode()[:, 0] for name, encoded in update.items()}
    return values, Private.read(folder / "private.h5")


def test_the_server_knows_what_each_client_prunes() -> None:
    client = parse("client", "fedsgd+batch_size=4")
    for each in ("soteria", "flower_clipping"):
        alone, summed = (
            parse("defense", spec).protocol_of(client)
            for spec in (each, f"secure_aggregation+clients=2+each={each}")
        )
        assert (summed.pruning, summed.clipping) == (alone.pruning, alone.clipping)


def assert_close(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "client",
    ["fedsgd+batch_size=4", "fedavg+batch_size=4+local_lr=1e-6+local_steps=4+mini_batch=1"],
)
def test_of_clients_that_hardly_move_the_server_sees_the_gradient_of_all_samples(
    simulate: Simulate, client: str
) -> None:
    """Mini-batches stay within a client."""
    summed, private = seen(simulate, f"{client}+victims=2", "secure_aggregation+clients=2")
    whole, same = seen(simulate, "fedsgd+batch_size=4+victims=2", "none")
    assert np.array_equal(private.inputs, same.inputs)
    assert_close(summed, whole)


def test_of_clients_of_several_steps_it_is_the_mean_of_what_each_would_send(
    simulate: Simulate,
) -> None:
    """Each goes down its own way, which the whole batch together would not."""
    steps = "local_lr=0.5+local_steps=3"
    client = f"fedavg+batch_size=4+{steps}+victims=1"
    summed, private = seen(simulate, client, "secure_aggregation+clients=2")
    network = load_network(Model.read(simulate(client=client) / "model.h5"), "model.h5")
    alone = parse("client", f"fedavg+batch_size=2+{steps}+victims=1")
    halves = (torch.from_numpy(held[0]).chunk(2) for held in (private.inputs, private.labels))
    first, second = (alone.compute(network, *own) for own in zip(*halves, strict=True))
    assert_close(summed, {name: (first[name] + second[name]).numpy() / 2 for name in first})
    together, _ = seen(simulate, client, "none")
    assert max(np.abs(summed[name] - value).max() for name, value in together.items()) > 1e-5


def test_the_drift_is_that_of_what_is_sent(simulate: Simulate) -> None:
    """Each client goes through its samples in an order of its own."""
    steps = "local_lr=0.5+local_steps=4+mini_batch=1+order=shuffled"
    client = f"fedavg+batch_size=4+{steps}+victims=1"
    summed, private = seen(simulate, client, "secure_aggregation+clients=2")
    whole, same = seen(simulate, "fedsgd+batch_size=4+victims=1", "none")
    assert np.array_equal(private.inputs, same.inputs)
    sent, true = (
        {name: torch.from_numpy(value) for name, value in values.items()}
        for values in (summed, whole)
    )
    assert private.drift == pytest.approx(relative_error(sent, true), rel=1e-4)


def test_noise_of_each_client_is_its_own_and_the_sum_has_less_of_it(simulate: Simulate) -> None:
    client = "fedsgd+batch_size=4+victims=1"
    clean, _ = seen(simulate, client, "none")
    errors = []
    for defense in ("gaussian+std=0.1", "secure_aggregation+each=gaussian~std=0.1"):
        noisy, _ = seen(simulate, client, defense)
        errors.append(np.concatenate([(noisy[name] - clean[name]).ravel() for name in clean]).std())
    assert errors[0] / errors[1] == pytest.approx(2, rel=0.1)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("secure_aggregation+clients=1", "clients"),
        ("secure_aggregation+each=secure_aggregation", "nested sums"),
        ("secure_aggregation+each=fedcdp", "privacy guarantee"),
        ("secure_aggregation+each=dp", "privacy guarantee"),
    ],
)
def test_what_makes_no_sum_is_refused(spec: str, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        parse("defense", spec)


@pytest.mark.parametrize(
    ("client", "said"),
    [
        ("fedsgd+batch_size=6", r"6 samples .* equally among 4 clients"),
        ("fedavg+batch_size=16+mini_batch=8+local_steps=2", "does not divide the 4 samples"),
        ("epochs+batch_size=16+update_size=4", "move between clients"),
    ],
)
def test_samples_that_cannot_be_dealt_out_are_refused_before_any_work(
    client: str, said: str
) -> None:
    path = f"photos/lenet/untrained/honest/{client}/secure_aggregation"
    with pytest.raises(IncompatibleError, match=said):
        Cell.parse(dict(zip(LEVELS, path.split("/"), strict=False)))
