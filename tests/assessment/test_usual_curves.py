from __future__ import annotations

from typing import Any

import pytest

from gleak.assessment.usual_curves import usual_curves
from gleak.core.registry import parse


@pytest.mark.parametrize(
    ("training", "client", "curves"),
    [
        ("untrained", "fedsgd", {"batch_size": [1, 4], "rounds": [0, 5]}),
        ("central", "fedsgd+batch_size=16", {"batch_size": [1, 4, 16]}),
        (
            "federated+rounds=20",
            "fedavg+batch_size=8+local_steps=9",
            {"batch_size": [1, 2, 8], "local_steps": [1, 3, 9], "rounds": [0, 20]},
        ),
        (
            "captured",
            "fedavg+batch_size=16+local_steps=8+mini_batch=4+optimizer=sgd~momentum=0.9",
            {"batch_size": [1, 4, 16], "local_steps": [1, 4, 8], "state": ["zero", "kept"]},
        ),
    ],
)
def test_curves_lead_from_an_easy_client_to_that_of_the_deployment(
    training: str, client: str, curves: dict[str, Any]
) -> None:
    assert usual_curves(parse("training", training), parse("client", client)) == curves
