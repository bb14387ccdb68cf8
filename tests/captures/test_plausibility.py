"""Updates that cannot be of the training that is given, told without samples."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from gleak.artifacts.protocol import Protocol
from gleak.captures.plausibility import are_not_parameters, are_parameters, decays, doubt
from gleak.core.registry import parse

RATE = 1e-3
TORCH = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "adagrad": torch.optim.Adagrad,
    "rmsprop": torch.optim.RMSprop,
}


def update_of(name: str, steps: int) -> dict[str, np.ndarray]:
    """Update of a network that trains on noise, whose gradients are alike in no two steps."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))
        before = [value.detach().clone() for value in model.parameters()]
        optimizer = TORCH[name](model.parameters(), lr=RATE)
        for _ in range(steps):
            optimizer.zero_grad()
            labels = torch.randint(4, (8,))
            functional.cross_entropy(model(torch.rand(8, 16)), labels).backward()
            optimizer.step()
    pairs = zip(before, model.named_parameters(), strict=True)
    return {name: (value.detach() - old).numpy()[None, None] for old, (name, value) in pairs}


def protocol(name: str, steps: int, rate: float = RATE, **fields: object) -> Protocol:
    optimizer = parse("client_optimizer", name)
    return Protocol(
        content="difference", local_steps=steps, local_lr=rate, optimizer=optimizer, **fields
    )


@pytest.mark.parametrize("steps", [1, 2, 20])
@pytest.mark.parametrize("name", TORCH)
def test_the_true_training_is_not_doubted(name: str, steps: int) -> None:
    doubted = doubt(protocol(name, steps), update_of(name, steps))
    assert doubted is None or (steps == 1 and name in ("adagrad", "rmsprop"))


@pytest.mark.parametrize("said", ["sgd", "adam", "sgd+momentum=0.9"])
def test_one_step_of_adam_is_recognised_with_its_rate(said: str) -> None:
    message = doubt(protocol(said, 1, 0.1), update_of("adam", 1))
    assert message is not None
    assert "--optimizer adam --local-lr 1e-3 --local-steps 1" in message


@pytest.mark.parametrize("steps", [3, 20])
@pytest.mark.parametrize("name", ["adam", "adamw", "adagrad", "rmsprop"])
def test_a_rate_that_is_too_small_is_named(name: str, steps: int) -> None:
    message = doubt(protocol(name, steps, RATE / 100), update_of(name, steps))
    assert message is not None
    assert "it was at least" in message


def test_clipped_steps_bound_the_norm() -> None:
    update = update_of("sgd", 3)
    norm = float(np.sqrt(sum(np.square(value).sum() for value in update.values())))
    assert doubt(protocol("sgd", 3, clip_norm=norm / RATE), update) is None
    assert doubt(protocol("sgd+momentum=0.9", 3, clip_norm=norm / RATE / 25), update) is None
    message = doubt(protocol("sgd", 3, clip_norm=norm / RATE / 6), update)
    assert message is not None
    assert "it was at least 0.002" in message


def test_of_a_state_that_was_kept_nothing_is_known() -> None:
    assert doubt(protocol("adam", 1, RATE / 100, state="kept"), update_of("adam", 1)) is None


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (0.0, 1.0),  # A layer that begins with zeros.
        (1e-3, 0.1),
        (1.0, 0.5),
        (1.0, 1.5),
        (1.0, -0.2),  # Along the parameters, through zero.
    ],
)
def test_a_training_is_no_gradient(before: float, after: float) -> None:
    """A draw of parameters, and one that changes them."""
    one, other = torch.randn(2, 500, generator=torch.Generator().manual_seed(0))
    states = ({"weight": before * one}, {"weight": after * one + 0.1 * abs(after) * other})
    assert not are_not_parameters(states[1], states[0])
    assert are_parameters(states[1], states[0]) is False


@pytest.mark.parametrize(
    ("name", "rate", "strong"),
    [("sgd", 1e3, False), ("adamw", 1e-3, False), ("adamw", 10.0, True)],
)
def test_weight_decay_can_remove_the_parameters(name: str, rate: float, strong: bool) -> None:
    assert decays(protocol(name, 20, rate)) is strong


@pytest.mark.parametrize(("momentum", "strong"), [("", False), ("+momentum=0.9", True)])
def test_momentum_multiplies_weight_decay(momentum: str, strong: bool) -> None:
    assert decays(protocol(f"sgd+weight_decay=0.01{momentum}", 20, 1.0)) is strong


def test_of_few_values_nothing_can_be_told() -> None:
    """Two weights of which one was unlearned."""
    before, after = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 0.5])
    assert not are_not_parameters({"weight": after}, {"weight": before})


def still(update: dict[str, np.ndarray], *names: str) -> dict[str, np.ndarray]:
    return {name: 0 * value if name in names else value for name, value in update.items()}


@pytest.mark.parametrize("fields", [{}, {"state": "kept"}])
def test_a_layer_that_does_not_move_is_named(fields: dict[str, object]) -> None:
    """It is frozen, or no sample activates its units."""
    given = protocol("sgd", 3, **fields)
    message = doubt(given, still(update_of("sgd", 3), "0.weight", "0.bias"))
    assert message is not None
    assert message.startswith("the update of 0.weight, 0.bias is zero in all clients")
    assert "requires_grad_(False)" in message


def test_a_layer_that_does_not_move_is_named_of_gradients() -> None:
    message = doubt(Protocol(content="gradient"), still(update_of("sgd", 1), "2.weight", "2.bias"))
    assert message is not None and message.startswith("the update of 2.weight, 2.bias is zero")


def test_a_bias_that_moves_less_than_its_rounding_is_not_named() -> None:
    assert doubt(protocol("sgd", 3), still(update_of("sgd", 3), "0.bias")) is None


def test_a_layer_that_one_client_moves_is_not_named() -> None:
    update = update_of("sgd", 3)
    both = still(update, "0.weight", "0.bias")
    clients = {name: np.concatenate([update[name], both[name]]) for name in update}
    assert doubt(protocol("sgd", 3), clients) is None


def test_what_contradicts_the_training_is_named_before_layers_that_do_not_move() -> None:
    message = doubt(protocol("sgd", 1, 0.1), still(update_of("adam", 1), "0.weight", "0.bias"))
    assert message is not None
    assert 0 < message.index("--optimizer adam") < message.index("the update of 0.weight, 0.bias")
