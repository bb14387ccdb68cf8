"""What the gradient-matching attacks are assembled from."""

from __future__ import annotations

import pytest

from gleak.attacks.matching import MatchingAttack
from gleak.registry import load, parse

MATCHING = sorted(name for name, cls in load("attack").items() if issubclass(cls, MatchingAttack))


@pytest.mark.parametrize("name", MATCHING)
def test_the_budget_reaches_the_engine(name: str) -> None:
    spec = parse("attack", f"{name}+iterations=7")
    parts = spec.parts()
    assert parts.iterations == 7
    assert spec.evaluations == 7 * parts.optimizer.evaluations_per_iteration


@pytest.mark.parametrize("name", MATCHING)
def test_every_field_changes_the_parts(name: str) -> None:
    """A field that does nothing would lie in a path."""
    changes = {
        "iterations": "9",
        "threshold": "0.125",
        "restarts": "1",
        "patience": "2",
        "start": "uniform",
        "labels": "known",
        "distance": "cosine",
        "optimizer": "adam",
        "alpha": "0.5",
        "lr": "0.75",
        "tv": "0.25",
        "client_model": "unrolled",
        "compared": "all",
    }
    standard = parse("attack", name).parts()
    for field in load("attack")[name].model_fields:
        assert parse("attack", f"{name}+{field}={changes[field]}").parts() != standard, field


def test_each_attack_finds_labels_in_its_own_way() -> None:
    rules = {name: parse("attack", name).parts().labels for name in ("dlg", "idlg", "cpl")}
    assert rules == {"dlg": "joint", "idlg": "sign", "cpl": "argmin"}
