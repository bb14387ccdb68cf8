"""What explains a captured update that differs from the one computed from its true samples."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from gleak.artifacts.encodings import Dense
from gleak.artifacts.private import Private
from gleak.captures.importing import Capture, captured_cell, describe_agreement
from gleak.captures.truth import compare_updates
from gleak.core.registry import parse

SHAPE, SAMPLES, STEPS, RATE = (1, 8, 8), 16, 8, 0.5
CLIENT = captured_cell(
    "mine",
    "digits+size=8",
    "lenet",
    victims=1,
    batch_size=SAMPLES,
    mini_batch=4,
    local_steps=STEPS,
    local_lr=RATE,
    sends="weights",
).captured
NONE = parse("defense", "none")


def network(dropout: float) -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Dropout(dropout), nn.Linear(32, 10)]
    return nn.Sequential(*layers)


def trained(dropout: float, *, shuffled: bool) -> tuple[dict[str, np.ndarray], Private]:
    """Return the update by torch's optimiser, and the true samples in the order of storage."""
    random = np.random.default_rng(1)
    inputs = torch.from_numpy(random.random((SAMPLES, *SHAPE), dtype=np.float32))
    labels = torch.arange(SAMPLES) % 10
    learner = network(dropout).train()
    before = {name: value.detach().clone() for name, value in learner.named_parameters()}
    optimizer = torch.optim.SGD(learner.parameters(), lr=RATE)
    torch.manual_seed(3)
    for step in range(STEPS):
        if step % 4 == 0:
            order = torch.randperm(SAMPLES) if shuffled else torch.arange(SAMPLES)
        rows = order[step % 4 * 4 :][:4]
        optimizer.zero_grad()
        functional.cross_entropy(learner(inputs[rows]), labels[rows]).backward()
        optimizer.step()
    update = {
        name: (value.detach() - before[name]).numpy()[None, None]
        for name, value in learner.named_parameters()
    }
    unknown = np.full((1, SAMPLES), -1)
    return update, Private(
        modality="image", inputs=inputs[None].numpy(), labels=labels[None].numpy(), indices=unknown
    )


def encoded(update: dict[str, np.ndarray]) -> list[dict[str, Dense]]:
    """As the one client sends it."""
    return [{name: Dense(value) for name, value in update.items()}]


@pytest.mark.parametrize(
    ("dropout", "shuffled", "first"),
    [(0.0, True, "another order of the samples"), (0.5, False, "active 3")],
)
def test_a_shuffled_loader_and_dropout_are_told_apart(
    dropout: float, shuffled: bool, first: str
) -> None:
    update, truth = trained(dropout, shuffled=shuffled)
    found = compare_updates(CLIENT, network(0.5).eval(), encoded(update), truth, NONE)
    assert {cause.name for cause in found.causes} == {"another order of the samples", "active 3"}
    text = describe_agreement(Capture(Path(), found), CLIENT)
    assert f"the first client's update differs by {100 * found.error:.0f}%, and {first}" in text


def test_nothing_random_is_named_where_nothing_can_be_drawn() -> None:
    update, truth = trained(0.0, shuffled=False)
    wrong = {name: value * 2 for name, value in update.items()}

    client = CLIENT.model_copy(update={"mini_batch": None, "local_steps": 1})
    assert compare_updates(client, network(0.0).eval(), encoded(wrong), truth, NONE).causes == ()


def test_updates_that_agree_have_no_causes() -> None:
    update, truth = trained(0.0, shuffled=False)
    found = compare_updates(CLIENT, network(0.5).eval(), encoded(update), truth, NONE)
    assert found.agrees
    assert found.causes == ()
