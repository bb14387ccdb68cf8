from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from gleak.artifacts.model import Model
from gleak.artifacts.private import Private
from gleak.artifacts.update import Update
from gleak.core.errors import SpecError
from gleak.core.registry import parse
from gleak.local_training.descent import gradients
from gleak.models.broadcast import load_network

CLIENT = "epochs+victims=2+batch_size=6+update_size=2+epochs=3+server_lr=0.5"


def simulated(
    simulate: Callable[..., Path], client: str, defense: str = "none"
) -> tuple[Update, Private, Path]:
    folder = simulate(client=client, defense=defense)
    update = Update.read(folder / "update.h5")
    return update, Private.read(folder / "private.h5"), folder


def test_every_epoch_goes_through_all_samples_in_a_new_order(
    simulate: Callable[..., Path],
) -> None:
    update, private, _ = simulated(simulate, CLIENT)
    assert (update.batch_size, update.epochs, update.rounds) == (2, 3, 9)
    assert private.rounds is not None
    assert private.rounds.shape == (2, 9, 2)
    epochs = private.rounds.reshape(2, 3, 6)
    assert (np.sort(epochs, -1) == np.arange(6)).all()
    assert len({tuple(order) for victim in epochs for order in victim}) > 3


def test_updates_are_gradients_at_what_was_broadcast(simulate: Callable[..., Path]) -> None:
    update, private, folder = simulated(simulate, CLIENT)
    assert update.broadcast is not None
    assert private.rounds is not None
    network = load_network(Model.read(folder / "model.h5"), "it")
    for number in (0, 4, 8):
        parameters = {
            name: torch.from_numpy(value[number]).requires_grad_()
            for name, value in update.broadcast.items()
        }
        held = private.rounds[1, number]
        inputs, labels = (torch.from_numpy(v[1][held]) for v in (private.inputs, private.labels))
        expected = gradients(network, parameters, inputs, labels, "cross_entropy")
        for name, value in expected.items():
            sent = torch.from_numpy(update.update[name].decode()[1, number])
            torch.testing.assert_close(sent, value.detach(), atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize(
    ("client", "defense", "rate"),
    [
        (CLIENT, "none", 0.5),
        (CLIENT, "topk+keep=0.3", 0.5),
        (f"{CLIENT}+sends=weights+local_lr=0.1+local_steps=2+mini_batch=1", "none", -2.5),
    ],
)
def test_the_server_goes_along_the_mean_of_what_it_reads(
    client: str, defense: str, rate: float, simulate: Callable[..., Path]
) -> None:
    update, _, folder = simulated(simulate, client, defense)
    assert update.broadcast is not None
    first = Model.read(folder / "model.h5").parameters
    for name, broadcast in update.broadcast.items():
        np.testing.assert_array_equal(broadcast[0], first[name])
        mean = update.update[name].decode().mean(0)
        np.testing.assert_allclose(np.diff(broadcast, axis=0), -rate * mean[:-1], atol=1e-6)


def test_a_server_that_stands_still_broadcasts_the_same(simulate: Callable[..., Path]) -> None:
    update, _, _ = simulated(simulate, CLIENT.replace("server_lr=0.5", "server_lr=0"))
    assert update.broadcast is not None
    assert all((value == value[0]).all() for value in update.broadcast.values())


def test_one_round_is_fedavg(simulate: Callable[..., Path]) -> None:
    options = "+victims=2+batch_size=4+local_steps=2"
    alike, private, _ = simulated(simulate, f"epochs{options}+epochs=1")
    update, _, _ = simulated(simulate, f"fedavg{options}")
    assert alike.broadcast is None
    assert private.rounds is None
    for name, value in update.update.items():
        np.testing.assert_allclose(alike.update[name].decode(), value.decode(), atol=1e-6)


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ("batch_size=6+update_size=4", "update_size=4 does not divide batch_size=6"),
        ("batch_size=6+update_size=2+mini_batch=4", "do not go through the 2 of an update"),
        ("local_lr=0", "local_lr"),
        ("epochs=0", "epochs"),
    ],
)
def test_parts_that_do_not_fit_are_refused(fields: str, fault: str) -> None:
    with pytest.raises(SpecError, match=fault):
        parse("client", f"epochs+{fields}")
