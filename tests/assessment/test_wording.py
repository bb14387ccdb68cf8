from __future__ import annotations

import pytest

from gleak.assessment.findings import DefenseCost, Mean
from gleak.assessment.wording import change_in_words, duration, guarantee, readable

NONE = Mean(value=None, low=None, high=None)


def cost(change: float | None = None, **guarantees: float) -> DefenseCost:
    return DefenseCost(
        defense="d",
        deployed=False,
        exposures=[],
        labels=[],
        kilobytes=None,
        perturbation=NONE.model_copy(update={"value": change}),
        accuracy=None,
        guarantees=guarantees,
    )


@pytest.mark.parametrize(
    ("guarantees", "text"),
    [
        ({}, "nothing is guaranteed"),
        ({"reconstruction_bound": 1.0}, "nothing is guaranteed"),
        ({"epsilon_prv": 284.0}, "epsilon 284: guarantees practically nothing"),
        ({"epsilon_rdp": 5475.8}, "epsilon 5,476: guarantees practically nothing"),
        ({"epsilon_rdp": 11.0, "epsilon_prv": 9.0}, "epsilon 9: a weak guarantee"),
        (
            {"epsilon_stated": 0.5, "epsilon_prv": 9.0},
            "epsilon 9: a weak guarantee (the framework states epsilon 0.5, which proves nothing)",
        ),
        (
            {"epsilon_stated": 0.3},
            "nothing is guaranteed (the framework states epsilon 0.3, which proves nothing)",
        ),
    ],
)
def test_an_epsilon_is_said_in_words(guarantees: dict[str, float], text: str) -> None:
    assert guarantee(cost(**guarantees)) == text


@pytest.mark.parametrize(
    ("change", "part"), [(None, ""), (0.9, ""), (2.0, "more than it contains"), (51.8, "destroys")]
)
def test_a_change_larger_than_the_update_is_said_in_words(change: float | None, part: str) -> None:
    text = change_in_words(cost(change))
    assert part in text and bool(part) == bool(text)


def test_specs_and_times_are_readable() -> None:
    assert readable("none") == "none"
    assert readable("dp+sigma=0.1+clip=2") == "dp (sigma 0.1, clip 2)"
    assert readable("x+optimizer=sgd~momentum=0.9") == "x (optimizer sgd momentum 0.9)"
    assert (duration(83.4), duration(300)) == ("83.4 s", "5 minutes")
