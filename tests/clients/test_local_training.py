"""Local training as it is, beside a plain loop of PyTorch."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader

from gleak.artifacts.protocol import Protocol
from gleak.clients.local_training import LocalTraining, epoch_batches
from gleak.core.errors import IncompatibleError, SpecError
from gleak.core.registry import parse

SAMPLES = 7
MOMENTUM = "sgd~momentum=0.9~weight_decay=0.01"


@pytest.fixture
def network() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3))


@pytest.fixture
def batch() -> tuple[Tensor, Tensor]:
    numbers = torch.Generator().manual_seed(1)
    return torch.rand(SAMPLES, 5, generator=numbers), torch.tensor([0, 1, 2, 0, 1, 2, 2])


def rounds(
    network: nn.Module,
    batch: tuple[Tensor, Tensor],
    optimizer: torch.optim.Optimizer,
    *,
    epochs: int,
    size: int,
    clip_norm: float | None = None,
    clip_value: float | None = None,
    proximal: float = 0.0,
    **loss: float,
) -> None:
    """Train as a client does in a plain loop."""
    start = [value.detach().clone() for value in network.parameters()]
    steps = epochs * -(-SAMPLES // size)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)
    for _ in range(epochs):
        for first in range(0, SAMPLES, size):
            inputs, labels = (values[first : first + size] for values in batch)
            optimizer.zero_grad()
            value = functional.cross_entropy(network(inputs), labels, **loss)
            pairs = zip(network.parameters(), start, strict=True)
            value += proximal / 2 * sum((own - old).square().sum() for own, old in pairs)
            value.backward()
            if clip_value is not None:
                nn.utils.clip_grad_value_(network.parameters(), clip_value)
            if clip_norm is not None:
                nn.utils.clip_grad_norm_(network.parameters(), clip_norm)
            optimizer.step()
            scheduler.step()


@pytest.mark.parametrize(
    ("fields", "options"),
    [
        ("", {}),
        ("+clip_norm=0.05", {"clip_norm": 0.05}),
        ("+clip_value=0.02+clip_norm=0.05", {"clip_value": 0.02, "clip_norm": 0.05}),
        ("+proximal=0.5", {"proximal": 0.5}),
        ("+label_smoothing=0.1", {"label_smoothing": 0.1}),
    ],
)
@pytest.mark.parametrize("kind", [MOMENTUM, "adam"])
def test_a_round_is_that_of_a_plain_loop(
    kind: str,
    fields: str,
    options: dict[str, float],
    network: nn.Module,
    batch: tuple[Tensor, Tensor],
) -> None:
    """Two epochs of mini-batches of 3, 3 and 1 samples, by a cosine schedule."""
    text = (
        f"fedavg+batch_size={SAMPLES}+mini_batch=3+local_steps=6+local_lr=0.1+sends=weights"
        f"+optimizer={kind}+schedule=cosine{fields}"
    )
    sent = parse("client", text).compute(network, *batch)
    after = deepcopy(network)
    optimizer = (
        torch.optim.SGD(after.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)
        if kind == MOMENTUM
        else torch.optim.Adam(after.parameters(), lr=0.1)
    )
    rounds(after, batch, optimizer, epochs=2, size=3, **options)
    for name, value in network.named_parameters():
        moved = (after.get_parameter(name) - value).detach()[None]
        torch.testing.assert_close(sent[name], moved, rtol=1e-4, atol=2e-6)


def test_a_state_that_is_kept_is_that_of_an_earlier_round(
    network: nn.Module, batch: tuple[Tensor, Tensor]
) -> None:
    fields = f"fedavg+batch_size={SAMPLES}+local_steps=3+local_lr=0.1+sends=weights"
    kept = parse("client", f"{fields}+optimizer={MOMENTUM}+state=kept").compute(network, *batch)
    after, before = deepcopy(network), deepcopy(network.state_dict())
    optimizer = torch.optim.SGD(after.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)
    for _ in range(2):
        after.load_state_dict(before)
        for _ in range(3):
            optimizer.zero_grad()
            functional.cross_entropy(after(batch[0]), batch[1]).backward()
            optimizer.step()
    for name, value in network.named_parameters():
        moved = (after.get_parameter(name) - value).detach()[None]
        torch.testing.assert_close(kept[name], moved, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("drop_last", [None, True])
@pytest.mark.parametrize("size", [2, 3, 7])
def test_batches_are_those_of_a_data_loader(size: int, drop_last: bool | None) -> None:
    protocol = Protocol(batch_size=SAMPLES, mini_batch=size, local_steps=8, drop_last=drop_last)
    loader = DataLoader(range(SAMPLES), batch_size=size, drop_last=bool(drop_last))  # type: ignore[arg-type,var-annotated]
    expected = [batch.tolist() for _ in range(8) for batch in loader][:8]
    assert [batch.tolist() for batch in epoch_batches(protocol, SAMPLES)] == expected


def test_shuffled_epochs_hold_every_sample_once() -> None:
    protocol = Protocol(mini_batch=3, local_steps=6, order="shuffled")
    batches = epoch_batches(protocol, SAMPLES)
    for epoch in (batches[:3], batches[3:]):
        assert sorted(torch.cat(epoch).tolist()) == list(range(SAMPLES))
    assert torch.cat(batches[:3]).tolist() != torch.cat(batches[3:]).tolist()


@pytest.mark.parametrize(
    "fields",
    [
        {"optimizer": "sgd~momentum=0.9~dampening=0.5"},
        {"optimizer": "sgd~momentum=0.9~nesterov=true~weight_decay=0.1"},
        {"schedule": "linear~end=0.5", "proximal": 0.5},
        {"optimizer": MOMENTUM, "local_steps": 1},
    ],
)
def test_what_linear_training_adds_is_known(fields: dict[str, object]) -> None:
    """The mean direction is c g + k w for any gradient g that is the same in all steps."""
    given = {"local_steps": 4, "local_lr": 0.3, **fields}
    for key, kind in (("optimizer", "client_optimizer"), ("schedule", "schedule")):
        if key in given:
            given[key] = parse(kind, str(given[key]), "~")
    protocol = Protocol(**given)  # type: ignore[arg-type]
    weights, gradient = torch.randn(2, 9, dtype=torch.float64)
    training = LocalTraining.of(protocol, {"weight": weights})
    for _ in range(protocol.local_steps):
        training = training.after({"weight": gradient})
    expected = protocol.gradient_response * gradient + protocol.decay * weights
    torch.testing.assert_close(training.mean_direction["weight"], expected)
    moved = training.parameters["weight"] - weights
    scale = replace(protocol, content="difference").update_scale
    torch.testing.assert_close(moved, scale * training.mean_direction["weight"])


def test_gradients_of_several_clients_are_clipped_one_by_one() -> None:
    protocol = Protocol(clip_norm=1.0)
    gradients = {"a": torch.tensor([[3.0, 0.0], [0.1, 0.0]]), "b": torch.tensor([[4.0], [0.2]])}
    start = {name: torch.zeros_like(value) for name, value in gradients.items()}
    directions = LocalTraining.of(protocol, start, clients=1).after(gradients).mean_direction
    torch.testing.assert_close(directions["a"], torch.tensor([[0.6, 0.0], [0.1, 0.0]]))
    torch.testing.assert_close(directions["b"], torch.tensor([[0.8], [0.2]]))


def test_mixed_precision_is_that_of_autocast(
    network: nn.Module, batch: tuple[Tensor, Tensor]
) -> None:
    fields = f"fedsgd+batch_size={SAMPLES}"
    sent = parse("client", f"{fields}+autocast=bfloat16").compute(network, *batch)
    with torch.autocast("cpu", torch.bfloat16):
        loss = functional.cross_entropy(network(batch[0]), batch[1])
    loss.backward()
    plain = parse("client", f"fedsgd+batch_size={SAMPLES}").compute(network, *batch)
    for name, value in network.named_parameters():
        torch.testing.assert_close(sent[name][0], value.grad, rtol=2e-2, atol=1e-4)
        assert not torch.equal(sent[name], plain[name])


def test_a_defence_of_every_samples_gradient_is_refused_beside_what_it_does_not_compute() -> None:
    client = parse("client", "fedsgd+label_smoothing=0.1")
    with pytest.raises(IncompatibleError, match="label_smoothing"):
        parse("defense", "fedcdp").check(client)


def test_a_list_of_rates_that_does_not_fit_the_steps_is_refused() -> None:
    with pytest.raises(SpecError, match="2 factors, not 3"):
        parse("client", "fedavg+local_steps=3+schedule=listed~values=1x2")


@pytest.mark.parametrize("name", ["sgd", "sgd+momentum=0.9+nesterov=true", "adamw", "rmsprop"])
def test_steps_in_place_are_the_steps(name: str) -> None:
    """And change neither gradients nor the broadcast parameters."""
    protocol = Protocol(
        local_steps=4,
        local_lr=0.1,
        optimizer=parse("client_optimizer", name),
        schedule=parse("schedule", "cosine"),
        clip_norm=1.0,
        proximal=0.5,
    )
    start = {"a": torch.rand(3, 2), "b": torch.rand(4)}
    training = LocalTraining.of(protocol, start)
    moving = replace(training, parameters={key: value.clone() for key, value in start.items()})
    kept = {key: value.clone() for key, value in start.items()}
    for _ in range(protocol.local_steps):
        gradients = {key: torch.randn_like(value) for key, value in start.items()}
        given = {key: value.clone() for key, value in gradients.items()}
        training, moving = training.after(gradients), moving.moved(gradients)
        torch.testing.assert_close(gradients, given, rtol=0, atol=0)
    torch.testing.assert_close(moving.parameters, training.parameters)
    torch.testing.assert_close(moving.mean_direction, training.mean_direction)
    torch.testing.assert_close(moving.start, kept, rtol=0, atol=0)
