from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import gleak

CLAIMED = 4.3771781  # of noise as large as the sensitivity, mu = 1, at delta 1e-5


def clipped(update: torch.Tensor) -> torch.Tensor:
    return update / max(1.0, float(update.norm()))


def noisy(update: torch.Tensor, deviation: float) -> torch.Tensor:
    return update + deviation * torch.randn(update.shape)


@pytest.fixture(autouse=True)
def seeded():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


def test_scores_of_any_container_give_one_bound():
    random = np.random.default_rng(0)
    present, absent = random.normal(2, 1, 500), random.normal(0, 1, 500)
    given = [
        gleak.audit_epsilon(as_given(present), as_given(absent))
        for as_given in (np.asarray, list, torch.from_numpy)
    ]
    assert len({audit.epsilon for audit in given}) == 1
    assert given[0].epsilon > 1
    assert (given[0].scores_with, given[0].scores_without) == (500, 500)


def test_a_function_that_does_what_it_says_keeps_its_claim():
    audit = gleak.audit_defense(lambda update: noisy(clipped(update), 2), method="gaussian")
    assert 0.5 * CLAIMED < audit.epsilon < CLAIMED


@pytest.mark.parametrize(
    "broken",
    [lambda update: noisy(clipped(update), 1), lambda update: noisy(update, 2)],
    ids=["half the noise", "no clipping"],
)
def test_a_broken_function_is_caught(broken):
    assert gleak.audit_defense(broken, method="gaussian").epsilon > CLAIMED


def test_a_defence_is_audited_by_its_text():
    audit = gleak.audit_defense("dp+sigma=2", trials=400)
    assert audit.method == "gaussian"
    assert 0 < audit.epsilon < CLAIMED
    assert audit == gleak.audit_defense("dp+sigma=2", trials=400)
    assert gleak.audit_defense("none", trials=200).method == "rates"


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"defense": "dpp"}, gleak.GleakError, "did you mean 'dp'"),
        ({"client": "fedsg"}, gleak.GleakError, "did you mean 'fedsgd'"),
        ({"trials": 10}, gleak.GleakError, "trials"),
        ({"confidence": 1.5}, gleak.GleakError, "confidence"),
        ({"delta": 0}, gleak.GleakError, "at which Gaussian noise has no epsilon"),
        ({"method": "exact"}, gleak.GleakError, "method"),
        ({"seed": -1}, gleak.GleakError, "seed"),
        ({"defense": lambda update: update[:2]}, gleak.GleakError, r"returns shape \(2,\)"),
        ({"defense": lambda update: update * math.nan}, gleak.GleakError, "not finite in trial 0"),
    ],
)
def test_bad_input_is_refused(given, error, message):
    with pytest.raises(error, match=message):
        gleak.audit_defense(**{"defense": "dp", "trials": 100, **given})
