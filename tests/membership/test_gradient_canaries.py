from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from gleak.core.errors import IncompatibleError, SpecError
from gleak.core.registry import parse
from gleak.core.spec import build_spec, changed
from gleak.defenses.base import encode
from gleak.defenses.differential_privacy import DifferentialPrivacy
from gleak.membership.canaries import Subject
from gleak.membership.epsilon_audit import audit_scores
from gleak.membership.gradient_canaries import GradientCanaries, protected_units
from gleak.membership.trade_off import gaussian_epsilon

BATCH = "fedsgd+batch_size=4"


def subject(defense: str, client: str = BATCH) -> Subject:
    return Subject(parse("client", client), parse("defense", defense))


def separation(found) -> float:
    """Distance of the means over the deviation, an estimate of mu."""
    present, absent = found.score[found.present], found.score[~found.present]
    return float((present.mean() - absent.mean()) / np.sqrt((present.var() + absent.var()) / 2))


CENTRAL = "flower_central_dp+clients=4+noise_multiplier=2"
LOCAL = f"flower_local_dp+sensitivity=2+epsilon={math.sqrt(2 * math.log(1.25e5))}"
CLIPPED = "dp+scaling=clip+sigma=none+noise_multiplier=2"
PER_SAMPLE = "fedcdp+snr=none+sigma=2"
EPOCHS = "epochs+batch_size=32+epochs=2+update_size=4"
"""In each epoch a sample is in one of eight rounds."""
FOUR_STEPS = "fedavg+batch_size=4+local_steps=4+local_lr=0.1"


@pytest.mark.parametrize(
    ("defense", "client", "mu"),
    [
        ("dp+sigma=2", BATCH, 1),
        (PER_SAMPLE, BATCH, 1),
        (CENTRAL, BATCH, 1),
        ("fedcdp+snr=none+sigma=4", EPOCHS, math.sqrt(0.5)),
        pytest.param("dp+sigma=1+norm=0.5", BATCH, 1, marks=pytest.mark.slow),
        pytest.param(CLIPPED, f"{FOUR_STEPS}+sends=weights", 1, marks=pytest.mark.slow),
        pytest.param(
            "dp+sigma=2", "epochs+batch_size=4+epochs=4+mini_batch=4", 2, marks=pytest.mark.slow
        ),
        pytest.param(f"{PER_SAMPLE}+clip=0.1", FOUR_STEPS, 2, marks=pytest.mark.slow),
        pytest.param(LOCAL, BATCH, 1, marks=pytest.mark.slow),
    ],
)
def test_canaries_are_as_far_apart_as_the_accountant_says(defense: str, client: str, mu: float):
    """mu is the sensitivity over the deviation, 2 norm / sigma, times the root of the steps."""
    found = GradientCanaries(trials=400).test(subject(defense, client), 0)
    assert separation(found) == pytest.approx(mu, abs=0.3)


def test_all_that_is_protected_is_a_canary():
    counts = {
        "dp": 1,
        "none": 1,
        "fedcdp": 4,
        "flower_central_dp+clients=2": 2,
        "secure_aggregation": 4,
    }
    client = parse("client", BATCH)
    found = {text: protected_units(client, parse("defense", text)) for text in counts}
    assert found == counts


def test_canaries_of_one_run_are_independent_under_gaussian_noise():
    audit = GradientCanaries(trials=1600)
    found = audit.test(subject("fedcdp+snr=none+sigma=2", "fedsgd+batch_size=8"), 0)
    rest = (found.score - np.where(found.present, 1, -1) * found.score.std()).reshape(-1, 8)
    correlations = np.corrcoef(rest.T)[np.triu_indices(8, 1)]
    assert np.abs(correlations).max() < 5 / np.sqrt(len(rest))
    assert 0.45 < found.present.mean() < 0.55


def test_equal_seeds_give_equal_audits_and_others_do_not():
    audit = GradientCanaries(trials=100)
    first, again, other = (audit.test(subject("dp+sigma=2"), seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.score, again.score)
    np.testing.assert_array_equal(first.present, again.present)
    assert not np.array_equal(first.score, other.score)


@pytest.mark.parametrize(
    "fields", ["order=fixed", "order=shuffled", "order=shuffled+local_steps=2"]
)
def test_samples_that_no_step_takes_are_no_trials(fields: str):
    client = f"fedavg+batch_size=7+mini_batch=4+drop_last=true+{fields}"
    found = GradientCanaries(trials=200).test(subject("fedcdp+snr=none+sigma=0.01", client), 0)
    np.testing.assert_array_equal(found.score > 0, found.present)
    assert len(found.score) == 200


def test_no_random_numbers_of_the_users_are_drawn():
    client = "epochs+batch_size=4+mini_batch=2+local_steps=2+optimizer=sgd~weight_decay=0.5"
    scores = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        scores.append(GradientCanaries(trials=100).test(subject("dp", client), 0).score)
        assert torch.equal(torch.get_rng_state(), before)
    np.testing.assert_array_equal(*scores)


def test_training_by_others_does_not_change_what_canaries_show():
    alone, with_others = (
        GradientCanaries(trials=100).audit(subject("dp+sigma=2", f"epochs+epochs=2{others}"), 0)
        for others in ("", "+between=central~epochs=1")
    )
    assert alone == with_others


class HalfTheNoise(DifferentialPrivacy):
    def protect(self, update, generator, memory):
        quiet = self.model_copy(update={"sigma": self.deviation / 2, "noise_multiplier": None})
        return DifferentialPrivacy.protect(quiet, update, generator, memory)


class NoClipping(DifferentialPrivacy):
    def protect(self, update, generator, memory):
        return {
            name: encode(
                value + self.deviation * value.new_empty(value.shape).normal_(generator=generator)
            )
            for name, value in update.items()
        }


@pytest.mark.parametrize("broken", [HalfTheNoise, NoClipping])
def test_a_broken_mechanism_is_caught(broken: type[DifferentialPrivacy]):
    defense = build_spec(broken, {"sigma": 2.0})
    audit = GradientCanaries(trials=400)
    found = audit.audit(Subject(parse("client", "fedsgd"), defense), 0)
    assert found.method == "gaussian"
    assert found.epsilon > gaussian_epsilon(1.0, audit.delta)


@pytest.mark.parametrize(
    ("cls", "least", "most"),
    [(DifferentialPrivacy, 0, 5), (HalfTheNoise, 95, 100), (NoClipping, 95, 100)],
)
def test_a_hundred_audits_by_the_defences_own_code(cls, least: int, most: int):
    """The lower bound exceeds the epsilon of mu = 1 in at most 5, or at least 95, of 100 audits.

    The trials of an audit are the rounds of one call, so that each costs a row of it.
    """
    defense = build_spec(cls, {"sigma": 2.0})
    direction = torch.zeros(16)
    direction[0] = 1000.0
    above = 0
    for seed in range(100):
        scores = []
        for number, sign in enumerate((1, -1)):
            rows = {"weight": (sign * direction).repeat(1000, 1)}
            generator = torch.Generator().manual_seed(2 * seed + number)
            scores.append(defense.protect(rows, generator, {})["weight"].decode()[0, :, 0])
        found = audit_scores(*scores, 1e-5, method="gaussian")
        above += found.epsilon > gaussian_epsilon(1.0, 1e-5)
    assert least <= above <= most


def test_more_canaries_than_directions_are_refused():
    with pytest.raises(IncompatibleError, match=r"4 canaries in one run .* values=3; choose"):
        GradientCanaries(values=3).audit(subject("fedcdp"), 0)


def test_a_delta_of_zero_is_refused_where_the_noise_has_no_epsilon():
    audit = GradientCanaries(delta=0, trials=100)
    with pytest.raises(SpecError, match="at which Gaussian noise has no epsilon"):
        audit.audit(subject("dp"), 0)
    assert audit.audit(subject("none"), 0).epsilon > 1


def test_a_defence_that_does_not_suit_the_client_is_refused():
    with pytest.raises(IncompatibleError, match="cannot be divided"):
        GradientCanaries().audit(subject("secure_aggregation+clients=3"), 0)


@pytest.mark.parametrize("fields", [{"trials": 50}, {"confidence": 1.0}, {"delta": 1.0}])
def test_fields_out_of_range_are_refused(fields: dict):
    with pytest.raises(SpecError):
        changed(GradientCanaries(), fields)
