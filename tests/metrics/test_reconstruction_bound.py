"""Bounds on reconstruction against simulated attackers, Monte Carlo and other bounds."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr

from gleak.core.registry import load, parse
from gleak.metrics.base import MetricUnavailable
from gleak.metrics.reconstruction_bound import reconstruction_bound
from tests.metrics.subjects import changed

DRAWS = 20_000
SAMPLES = np.random.default_rng(0).random((2, 3, 1, 4, 4), dtype=np.float32)
MULTIPLIERS = st.floats(0.05, 50)
PRIORS = st.floats(1e-6, 0.999)


def standard_error(share: float) -> float:
    return (share * (1 - share) / DRAWS) ** 0.5


def best_attack(candidates: np.ndarray, multiplier: float, steps: int = 1) -> float:
    """The success of the best guess at one of equally probable candidates, each a row.

    The observed sum of the steps is nearest to the candidate of the largest likelihood.
    """
    generator = np.random.default_rng(1)
    truth = generator.integers(len(candidates), size=DRAWS)
    noise = multiplier * steps**0.5 * generator.standard_normal((DRAWS, candidates.shape[1]))
    observed = steps * candidates[truth] + noise
    distances = -2 * observed @ candidates.T + steps * (candidates**2).sum(1)
    return float((distances.argmin(1) == truth).mean())


@pytest.mark.parametrize("multiplier", [0.3, 1, 4])
@pytest.mark.parametrize("steps", [1, 9])
def test_two_opposite_candidates_attain_the_bound(multiplier: float, steps: int):
    candidates = np.array([[1.0], [-1.0]])
    bound = reconstruction_bound(multiplier, 0.5, steps)
    assert bound == pytest.approx(ndtr(steps**0.5 / multiplier))
    found = best_attack(candidates, multiplier, steps)
    assert found == pytest.approx(bound, abs=4 * standard_error(bound))


@pytest.mark.parametrize("count", [2, 10, 100])
@pytest.mark.parametrize("multiplier", [0.2, 0.5, 2])
def test_the_best_attack_on_a_prior_stays_close_below(count: int, multiplier: float):
    """Orthogonal candidates on the sphere of the clipping norm."""
    bound = reconstruction_bound(multiplier, 1 / count)
    found = best_attack(np.eye(count), multiplier)
    assert 0.4 * bound < found < bound + 4 * standard_error(bound)


def test_an_attack_on_protected_gradients_that_knows_the_prior_stays_below():
    """It knows the network and the ten candidates, and compares with all their gradients."""
    generator = torch.Generator().manual_seed(0)
    defense = parse("defense", "dp+norm=2+sigma=1")
    layer, inputs = torch.nn.Linear(12, 3), torch.rand(10, 12, generator=generator)
    gradients = []
    for number, sample in enumerate(inputs):
        loss = torch.nn.functional.cross_entropy(layer(sample), torch.tensor(number % 3))
        gradients.append(torch.autograd.grad(loss, tuple(layer.parameters())))
    stacked = [torch.stack(values) for values in zip(*gradients, strict=True)]
    known = defense.at_sent_norm(dict(zip(("weight", "bias"), stacked, strict=True)))
    hits, times = 0, 200
    for _ in range(times):
        sent = defense.protect(known, generator, {})
        distances = sum(
            torch.cdist(torch.from_numpy(sent[name].decode()[0]).flatten(1), value.flatten(1)) ** 2
            for name, value in known.items()
        )
        hits += int((distances.argmin(1) == torch.arange(10)).sum())
    found, bound = hits / (10 * times), reconstruction_bound(0.5, 0.1)
    assert 0.2 < found < bound


def monte_carlo(multiplier: float, prior: float, steps: int, rate: float) -> float:
    """The estimate of Hayes et al. 2023: likelihood ratios beyond those of the reference."""
    generator = np.random.default_rng(2)

    def loss(used: np.ndarray) -> np.ndarray:
        seen = used + multiplier * generator.standard_normal(used.shape)
        return np.log1p(rate * np.expm1((2 * seen - 1) / (2 * multiplier**2))).sum(0)

    threshold = np.quantile(loss(np.zeros((steps, DRAWS))), 1 - prior)
    return float((loss(generator.random((steps, DRAWS)) < rate) > threshold).mean())


@pytest.mark.parametrize(
    ("multiplier", "prior", "steps", "rate"),
    [(1, 0.1, 20, 0.1), (0.5, 0.5, 10, 0.05), (4, 0.1, 30, 0.5), (0.2, 0.1, 10, 0.1)],
)
def test_subsampling_agrees_with_monte_carlo(
    multiplier: float, prior: float, steps: int, rate: float
):
    bound = reconstruction_bound(multiplier, prior, steps, rate)
    error = 4 * 2**0.5 * standard_error(bound) / prior**0.5
    assert bound == pytest.approx(monte_carlo(multiplier, prior, steps, rate), abs=error)
    assert bound < reconstruction_bound(multiplier, prior, steps)


@pytest.mark.parametrize(("multiplier", "steps"), [(0.5, 1), (2, 4), (5, 100)])
@pytest.mark.parametrize("prior", [0.5, 0.01, 1e-6])
def test_numbers_for_subsampling_end_in_the_closed_form(
    multiplier: float, steps: int, prior: float
):
    closed = reconstruction_bound(multiplier, prior, steps)
    found = reconstruction_bound(multiplier, prior, steps, 1 - 1e-12)
    assert closed <= found <= 1.011 * closed + 1e-8


@given(MULTIPLIERS, PRIORS, st.floats(1.001, 1000))
def test_renyi_privacy_implies_no_less(multiplier: float, prior: float, order: float):
    """Of order a: (prior exp(a / (2 z^2)))^((a - 1) / a) (Balle et al. 2022)."""
    exponent = (np.log(prior) + order / (2 * multiplier**2)) * (order - 1) / order
    by_renyi = np.exp(min(exponent, 0))
    assert reconstruction_bound(multiplier, prior) <= by_renyi * (1 + 1e-9)


@given(MULTIPLIERS, PRIORS, st.integers(1, 100))
def test_it_lies_between_the_prior_and_one(multiplier: float, prior: float, steps: int):
    bound = reconstruction_bound(multiplier, prior, steps)
    assert prior <= bound <= 1
    assert bound <= reconstruction_bound(multiplier / 2, prior, steps)
    assert bound == pytest.approx(reconstruction_bound(multiplier / steps**0.5, prior))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 0.1), "noise_multiplier above 0"),
        ((1, 1), "prior above 0 and below 1"),
        ((1, 0.1, 0), "steps of at least 1"),
        ((1, 0.1, 1, 0), "sampling_rate above 0"),
        ((1, float("nan")), "prior above 0"),
        ((float("nan"), 0.1), "noise_multiplier above 0"),
        ((1, 0.1, float("inf")), "a whole number of steps"),
        ((1, 0.1, 1.5), "a whole number of steps"),
        ((1, 0.1, 10**400), "a whole number of steps"),
        *(((value, 0.1), "noise_multiplier above 0") for value in ("1", None, 1j, 10**400)),
        ((1, "0.1"), "prior above 0"),
        ((1, 0.1, "3"), "a whole number of steps"),
        ((1, 0.1, 1, "1"), "sampling_rate above 0"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments: tuple, message: str):
    with pytest.raises(ValueError, match=message):
        reconstruction_bound(*arguments)


@pytest.mark.parametrize("multiplier", [1e4, 1e300, float("inf")])
@pytest.mark.parametrize("rate", [1, 0.5, 1e-300])
def test_strong_noise_leaves_the_prior_without_the_accountant(
    multiplier: float, rate: float, monkeypatch: pytest.MonkeyPatch
):
    """Which takes seconds for strong noise, and does not return for infinite noise."""
    monkeypatch.delattr("gleak.metrics.reconstruction_bound._mixture_blow_up")
    assert reconstruction_bound(multiplier, 0.1, 5, rate) == pytest.approx(0.1, rel=1e-3)


@pytest.mark.parametrize("multiplier", [1e-3, 1e-160, 1e-320])
def test_subsampled_noise_that_is_too_weak_is_named(multiplier: float):
    """Weak noise leaves the samples that are not used."""
    with pytest.raises(MetricUnavailable, match=r"noise of \S+ times the clipping norm"):
        reconstruction_bound(multiplier, 0.1, 10, 0.5)
    assert reconstruction_bound(multiplier, 0.1, 10) == 1
    assert reconstruction_bound(0.05, 0.1, 3, 0.1) == pytest.approx(1 - 0.9**4, abs=0.01)


@pytest.fixture
def measure(make_comparison):
    def measure(levels: dict[str, str], noise: list[list[float]] | None = None) -> list[float]:
        multipliers = None if noise is None else np.array(noise)
        comparison = changed(
            make_comparison(SAMPLES, SAMPLES),
            levels={"client": "fedsgd+batch_size=8", **levels},
            noise_multipliers=multipliers,
        )
        metric = parse("metric", "reconstruction_bound+prior=0.5")
        assert metric.applies(comparison)
        return metric.measure(comparison).tolist()

    return measure


def test_dp_bounds_by_the_radius_of_the_ball_of_updates_and_rounds_compose(measure):
    """Two batches with opposite updates of norm 2 attain it."""
    assert measure({"defense": "dp+norm=2+sigma=4"}) == pytest.approx([ndtr(0.5)] * 2)
    given_by_ratio = "dp+norm=7+sigma=none+noise_multiplier=2+scaling=clip"
    assert measure({"defense": given_by_ratio}) == pytest.approx([ndtr(0.5)] * 2)
    client = "epochs+batch_size=4+update_size=2+epochs=2"
    rounds = parse("client", client).rounds
    found = measure({"defense": "dp+sigma=4", "client": client})
    assert found == pytest.approx([ndtr(rounds**0.5 / 4)] * 2)


def test_noise_in_local_steps_bounds_a_sample(measure):
    """Recorded multipliers are relative to a replaced sample: twice the clipping norm."""
    defense = {"defense": "fedcdp+snr=none+sigma=2", "client": "fedavg+batch_size=3+local_steps=4"}
    found = measure(defense, [[1.0] * 4, [3.0] * 4])
    assert found == pytest.approx([ndtr(1.0), ndtr(1 / 3)])
    with pytest.raises(MetricUnavailable, match="depends on the data"):
        measure({"defense": "fedcdp+snr=10"}, [[1.0], [1.0]])


@pytest.mark.parametrize("name", load("defense"))
def test_defences_say_whether_their_noise_depends_on_the_data(name: str):
    assert parse("defense", name).data_dependent_noise == (name == "fedcdp")
    if name in ("gaussian", "laplace"):
        for unit in ("value", "gradient", "norm", "deviation"):
            summed = f"secure_aggregation+each={name}~unit={unit}"
            for defense in (f"{name}+unit={unit}", summed):
                dependent = parse("defense", defense).data_dependent_noise
                assert dependent == (unit in ("norm", "deviation"))
