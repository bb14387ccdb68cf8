"""What several local steps lead to, beside `torch.optim.SGD` step by step."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from gleak.artifacts.model import Model
from gleak.artifacts.private import Private
from gleak.artifacts.protocol import Protocol
from gleak.artifacts.update import Update
from gleak.clients.gradient_descent import gradients
from gleak.clients.local_training import epoch_batches
from gleak.core.errors import IncompatibleError, SpecError
from gleak.core.registry import parse
from gleak.models.broadcast import load_network
from gleak.studies.cell import LEVELS, Cell

SAMPLES = 6
BATCH = f"fedavg+batch_size={SAMPLES}"
SCHEDULES = [(1, 6), (3, 6), (2, 3), (9, 2)]
"""Local steps and mini-batch: one pass and several, of one step and several."""


@pytest.fixture
def network() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return parse("model", "lenet+width=3").build((2, 8, 8), 4).eval()


@pytest.fixture
def batch() -> tuple[Tensor, Tensor]:
    numbers = torch.Generator().manual_seed(1)
    return torch.rand(SAMPLES, 2, 8, 8, generator=numbers), torch.tensor([0, 1, 2, 3, 3, 1])


def trained(network: nn.Module, batch: tuple[Tensor, Tensor], steps: int, size: int) -> nn.Module:
    """After steps over the samples in their order, from the first again after the last.

    Its parameters have kept the sum of the steps' gradients.
    """
    plain = deepcopy(network)
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.5)
    sums = [torch.zeros_like(value) for value in plain.parameters()]
    for step in range(steps):
        some = [(step * size + place) % SAMPLES for place in range(size)]
        inputs, labels = (values[some] for values in batch)
        optimizer.zero_grad()
        functional.cross_entropy(plain(inputs), labels).backward()
        for total, parameter in zip(sums, plain.parameters(), strict=True):
            total += parameter.grad
        optimizer.step()
    for total, parameter in zip(sums, plain.parameters(), strict=True):
        parameter.grad = total
    return plain


@pytest.mark.parametrize(("steps", "size"), SCHEDULES)
def test_what_is_sent_is_that_of_torchs_descent(
    steps: int, size: int, network: nn.Module, batch: tuple[Tensor, Tensor]
) -> None:
    text = f"{BATCH}+local_steps={steps}+local_lr=0.5+mini_batch={size}"
    weights = parse("client", f"{text}+sends=weights").compute(network, *batch)
    gradient = parse("client", text).compute(network, *batch)
    after = trained(network, batch, steps, size)
    for name, value in network.named_parameters():
        moved = after.get_parameter(name)
        torch.testing.assert_close(weights[name], (moved - value)[None], atol=1e-6, rtol=1e-4)
        mean = moved.grad[None] / steps
        torch.testing.assert_close(gradient[name], mean, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (f"{BATCH}+mini_batch=12", "mini_batch=12 is more than the 6 samples"),
        ("epochs+batch_size=6+update_size=4", "update_size=4 does not divide batch_size=6"),
        ("epochs+between=captured", "between=captured does not train .* use central or federated"),
        ("epochs+batch_size=6+update_size=2+mini_batch=4", "more than the 2 samples of an update"),
        ("fedavg+local_lr=0", "local_lr"),
    ],
)
def test_mini_batches_that_a_round_does_not_have_are_refused(text: str, fault: str) -> None:
    with pytest.raises(SpecError, match=fault):
        parse("client", text)


@pytest.mark.parametrize("drop_last", ["true", "false"])
@pytest.mark.parametrize("steps", [1, 2, 3, 5, 7])
@pytest.mark.parametrize("size", [1, 2, 4, 6])
def test_no_sample_is_used_more_often_than_is_guaranteed(
    size: int, steps: int, drop_last: str
) -> None:
    text = f"fedavg+batch_size=6+mini_batch={size}+local_steps={steps}+drop_last={drop_last}"
    client = parse("client", text)
    uses = torch.cat(epoch_batches(client.protocol, 6)).bincount().max()
    assert client.uses_per_sample == uses
    assert parse("client", f"{text}+state=kept").uses_per_sample == 2 * uses


@pytest.mark.parametrize(("steps", "size"), SCHEDULES)
def test_the_server_knows_the_schedule(steps: int, size: int) -> None:
    fields = "" if size == SAMPLES else f"+mini_batch={size}"
    client = parse("client", f"{BATCH}+local_steps={steps}+local_lr=0.5{fields}")
    assert client.gradients_per_sample == steps * size / SAMPLES
    sent = Protocol(batch_size=SAMPLES, mini_batch=size, local_steps=steps, local_lr=0.5)
    assert client.protocol == sent
    weights = client.model_copy(update={"sends": "weights"}).protocol
    assert weights == replace(sent, content="difference")
    assert (sent.update_scale, weights.update_scale) == (1, -0.5 * steps)


AVERAGED = "epochs+victims=2+batch_size=6+update_size=2+epochs=3"
CLIENT = f"{AVERAGED}+server_lr=0.5"
STEPS = "local_lr=0.1+local_steps=2+mini_batch=1"


def simulated(
    simulate: Callable[..., Path], client: str, defense: str = "none"
) -> tuple[Update, Private, Path]:
    folder = simulate(client=client, defense=defense)
    update = Update.read(folder / "update.h5")
    return update, Private.read(folder / "private.h5"), folder


def test_every_epoch_goes_through_all_samples_and_sends_gradients_at_what_was_broadcast(
    simulate: Callable[..., Path],
) -> None:
    update, private, folder = simulated(simulate, CLIENT)
    assert (update.protocol.batch_size, update.protocol.epochs, update.rounds) == (2, 3, 9)
    assert private.rounds is not None
    assert private.rounds.shape == (2, 9, 2)
    epochs = private.rounds.reshape(2, 3, 6)
    assert (np.sort(epochs, -1) == np.arange(6)).all()
    assert len({tuple(order) for victim in epochs for order in victim}) > 3
    network = load_network(Model.read(folder / "model.h5"), "it")
    for number in (0, 4, 8):
        parameters = {
            name: torch.from_numpy(value[number]).requires_grad_()
            for name, value in (update.broadcast or {}).items()
        }
        held = private.rounds[1, number]
        inputs, labels = (torch.from_numpy(v[1][held]) for v in (private.inputs, private.labels))
        expected = gradients(network, parameters, inputs, labels, Protocol())
        for name, value in expected.items():
            sent = torch.from_numpy(update.update[name].decode()[1, number])
            torch.testing.assert_close(sent, value.detach(), atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize(
    ("client", "defense", "rate"),
    [
        (CLIENT, "none", 0.5),
        (f"{AVERAGED}+server_lr=0", "none", 0),
        (CLIENT, "topk+keep=0.3", 0.5),
        (f"{CLIENT}+sends=weights+{STEPS}", "none", -2.5),
        (f"{AVERAGED}+{STEPS}", "none", 0.2),
        (f"{AVERAGED}+sends=weights+{STEPS}", "none", -1),
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


def test_one_round_is_fedavg(simulate: Callable[..., Path]) -> None:
    options = "+victims=2+batch_size=4+local_steps=2"
    alike, private, _ = simulated(simulate, f"epochs{options}+epochs=1")
    update, _, _ = simulated(simulate, f"fedavg{options}")
    assert alike.broadcast is None
    assert private.rounds is None
    for name, value in update.update.items():
        np.testing.assert_allclose(alike.update[name].decode(), value.decode(), atol=1e-6)


@pytest.mark.parametrize(("steps", "size"), SCHEDULES)
def test_in_training_mode_each_step_normalises_by_its_mini_batch(
    steps: int, size: int, batch: tuple[Tensor, Tensor]
) -> None:
    torch.manual_seed(0)
    layers = nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(108, 4)
    network = nn.Sequential(*layers).eval()
    text = f"local_steps={steps}+local_lr=0.5+mini_batch={size}+batch_norm=training"
    client = parse("client", f"{BATCH}+{text}")
    update = client.compute(client.run(network), *batch)
    expected = trained(network.train(), batch, steps, size)
    for name, parameter in expected.named_parameters():
        assert torch.allclose(steps * update[name][0], parameter.grad, rtol=1e-3, atol=1e-5), name


CELL = "digits/lenet/captured+capture=a/honest/captured+capture=a/none/cpl"


def cell(**changes: str) -> Cell:
    return Cell.parse({**dict(zip(LEVELS, CELL.split("/"), strict=True)), **changes})


def test_a_captured_cell_is_one_that_fits() -> None:
    """As far as the cell goes."""
    assert str(cell()) == CELL
    assert cell().client.protocol.content == "difference"
    cell(client="captured+batch_size=5000+capture=a")  # more than the dataset has
    texts = cell().strings()
    upto_client = {level: texts[level] for level in LEVELS[:5]}
    assert Cell.parse(upto_client).end == "client"
    with pytest.raises(IncompatibleError, match="requires training"):
        Cell.parse({**upto_client, "training": "untrained"})


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"training": "untrained"}, r"training captured\+capture=a, not untrained"),
        ({"training": "captured+capture=b"}, r"training captured\+capture=a, not .*=b"),
        ({"crafting": "fishing"}, "crafting honest, not fishing"),
    ],
)
def test_captured_clients_had_what_they_had(changes: dict[str, str], wanted: str) -> None:
    with pytest.raises(IncompatibleError, match=rf"client captured\+capture=a requires {wanted}"):
        cell(**changes)
