from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gleak.assessment.client_text import client_in_words, warnings
from gleak.assessment.resolved import Resolved

Resolve = Callable[..., Resolved]
STEPS = {"batch_size": 8, "local_steps": 4, "local_lr": 0.01}


@pytest.mark.parametrize(
    ("keys", "parts"),
    [
        (
            {},
            ["untrained network, as in the first round, has 1 sample, and sends one gradient"],
        ),
        ({"client": {"batch_size": 4}}, ["has 4 samples, and sends one gradient of all of them;"]),
        (
            {"client": STEPS},
            ["4 local steps, each on all of them, by sgd at the learning rate 0.01"],
        ),
        (
            {"client": {**STEPS, "mini_batch": 2, "order": "shuffled", "schedule": "cosine"}},
            ["each on 2 of them, in a new order in every epoch", "0.01, schedule cosine;"],
        ),
        (
            {"client": {**STEPS, "optimizer": "sgd~momentum=0.9", "state": "kept"}},
            ["by sgd momentum 0.9, whose state is kept from earlier rounds at"],
        ),
        ({"training": "federated+rounds=5"}, ["the network after 5 federated rounds"]),
        ({"model": "resnet20"}, ["by running statistics (evaluation mode)", "dropout: none"]),
        (
            {"model": "resnet20", "client": {"batch_norm": "training", "batch_size": 2}},
            ["by the statistics of the batch (training mode)"],
        ),
        ({}, ["batch normalisation: none in this network", "test split of digits."]),
    ],
)
def test_a_client_is_restated(resolved: Resolve, keys: dict[str, Any], parts: list[str]) -> None:
    text = client_in_words(resolved(**keys))
    assert text.count("Each client") == 1 and "\n" not in text
    for part in parts:
        assert part in text


def test_several_steps_without_a_rate_are_asked_for_one(resolved: Resolve) -> None:
    silent = {key: value for key, value in STEPS.items() if key != "local_lr"}
    (text,) = warnings(resolved(client=silent))
    assert text == (
        "client: 4 local steps without a learning rate are taken at 0.0001, at which they hardly "
        "move; give local_lr"
    )
    for client in (STEPS, {}, {"batch_size": 4}):
        assert list(warnings(resolved(client=client))) == []
