"""What federated training says of itself before it runs."""

from __future__ import annotations

import pytest

from gleak.core.registry import parse
from gleak.training.federated import Federated


def federated(fields: str = "") -> Federated:
    return parse("training", f"federated{fields}")


def test_defaults_are_those_of_the_paper() -> None:
    spec = federated()
    assert (spec.clients, spec.chosen, str(spec.defense)) == (100, 10, "none")


@pytest.mark.parametrize(
    ("clients", "fraction", "chosen"), [(100, 1, 100), (7, 0.5, 4), (3, 0.01, 1), (1, 0.1, 1)]
)
def test_at_least_one_client_is_chosen(clients: int, fraction: float, chosen: int) -> None:
    assert federated(f"+clients={clients}+fraction={fraction}").chosen == chosen


def test_a_defence_stands_in_the_path_and_among_the_components() -> None:
    text = "federated+rounds=5+defense=gaussian~std=1e-3"
    spec = parse("training", text)
    assert str(spec) == text
    assert [part.name for part in spec.components()] == ["federated", "gaussian"]


def test_passes_over_the_data_are_counted() -> None:
    spec = federated("+clients=10+fraction=0.5+rounds=4+local_steps=3+batch_size=20")
    assert spec.epochs_of_data(1000) == pytest.approx(4 * 5 * 3 * 20 / 1000)
    assert spec.epochs_of_data(100) == pytest.approx(4 * 5 * 3 * 10 / 100)
