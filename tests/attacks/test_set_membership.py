"""Samples in the middle of what rounding leaves open."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gleak.attacks.best import ROUNDED
from gleak.attacks.candidates import POLISHED
from gleak.attacks.set_membership import relaxed_intersection
from gleak.core.errors import IncompatibleError
from gleak.core.registry import parse
from tests.attacks.cases import Make, psnr

SETS, START, BEST = (
    parse("attack", name)
    for name in ("set_membership", "set_membership+bounded=start", "best+budget=40")
)
ONE, BATCH = "fedsgd+victims=2", "fedsgd+batch_size=4+victims=2"


def intersection(*intervals: tuple[float, float]) -> tuple[float, float]:
    low, high = torch.tensor(intervals).T[..., None]
    first, last = relaxed_intersection(low, high, torch.zeros(1), torch.ones(1))
    return first.item(), last.item()


@pytest.mark.parametrize(
    "intervals, common",
    [
        ([(0.25, 0.75), (0.5, 1.5)], (0.5, 0.75)),
        ([(-1.0, 0.5)], (0.0, 0.5)),
        ([(0.25, 0.5), (0.375, 0.5), (0.75, 0.875)], (0.375, 0.5)),
        ([(0.125, 0.25), (0.5, 0.75)], (0.125, 0.75)),
        ([(2.0, 3.0)], (0.0, 1.0)),
        ([(float("-inf"), float("inf"))], (0.0, 1.0)),
    ],
)
def test_points_that_most_intervals_have_in_common(
    intervals: list[tuple[float, float]], common: tuple[float, float]
) -> None:
    assert intersection(*intervals) == common


@pytest.mark.parametrize("model", ["fc2", "fc2+normalise=imagenet", "mlp+activation=tanh"])
@pytest.mark.parametrize("client", [ONE, "fedavg+victims=2+local_lr=0.1"])
def test_rounding_of_one_sample_leaves_less_open_than_least_squares(
    make_photo_case: Make, model: str, client: str
) -> None:
    seen, truth = make_photo_case(SETS, client, model, "quantize")
    found = SETS.reconstruct(seen)
    found.validate()
    least_squares = parse("attack", "cpa_noisy").reconstruct(seen)
    gain = psnr(truth.inputs, found.inputs) - psnr(truth.inputs, least_squares.inputs)
    assert (gain > 2).all()
    assert found.labels.tolist() == truth.labels.tolist()


def test_true_samples_are_in_the_intervals_of_finely_rounded_values(make_photo_case: Make) -> None:
    seen, truth = make_photo_case(SETS, ONE, "fc2", "quantize+bits=8")
    found = SETS.reconstruct(seen)
    assert found.converged.all()
    np.testing.assert_allclose(found.inputs, truth.inputs, atol=0.01)


def test_samples_of_a_batch_improve_in_turn(make_photo_case: Make) -> None:
    seen, truth = make_photo_case(SETS, BATCH, "fc2", "quantize+bits=4")
    start = psnr(truth.inputs, parse("attack", "cpa_noisy").reconstruct(seen).inputs).mean()
    attacks = [parse("attack", f"set_membership+turns={turns}") for turns in (1, 8)]
    once, often = (psnr(truth.inputs, attack.reconstruct(seen).inputs) for attack in attacks)
    assert often.mean() > once.mean() > start + 1


def test_values_that_are_bounded_from_one_side_stay_at_the_start_if_asked(
    make_photo_case: Make,
) -> None:
    seen, _ = make_photo_case(SETS, ONE, "fc2", "quantize+bits=2")
    start = parse("attack", "aono").reconstruct(seen).inputs
    kept, middle = (attack.reconstruct(seen).inputs for attack in (START, SETS))
    assert ((kept == start) & (middle != start)).mean() > 0.1


@pytest.mark.parametrize(
    "defense, reason",
    [("none", "rounded to the nearest"), ("qsgd", "rounded to the nearest")],
)
def test_other_updates_are_refused(make_photo_case: Make, defense: str, reason: str) -> None:
    seen, _ = make_photo_case(SETS, ONE, "fc2", defense)
    with pytest.raises(IncompatibleError, match=reason):
        SETS.proposals(seen.of_victim(0), 100)
    start = parse("attack", "aono").reconstruct(seen)
    np.testing.assert_array_equal(SETS.reconstruct(seen).inputs, start.inputs)


@pytest.mark.parametrize("bits", [2, 3])
def test_best_returns_the_better_samples_as_they_are(make_photo_case: Make, bits: int) -> None:
    seen, truth = make_photo_case(BEST, ONE, "fc2", f"quantize+bits={bits}")
    found = BEST.reconstruct(seen)
    results = [psnr(truth.inputs, attack.reconstruct(seen).inputs) for attack in (SETS, START)]
    np.testing.assert_allclose(psnr(truth.inputs, found.inputs), np.maximum(*results), atol=1e-3)
    listed = [one for victim in range(2) for one in found.candidates(victim)]
    searched = {one.attack for one in listed if one.reason == POLISHED}
    assert searched == {str(SETS), str(START)}
    assert any(one.attack.startswith("map") and one.reason == ROUNDED for one in listed)


def test_best_returns_the_samples_of_a_batch_as_they_are(make_photo_case: Make) -> None:
    seen, truth = make_photo_case(BEST, BATCH, "fc2", "quantize+bits=4")
    found = BEST.reconstruct(seen)
    own = [attack.reconstruct(seen) for attack in (SETS, START)]
    for victim in range(2):
        assert any((found.inputs[victim] == one.inputs[victim]).all() for one in own)
    grey = psnr(truth.inputs, np.full_like(truth.inputs, 0.5))
    assert (psnr(truth.inputs, found.inputs).mean(1) > grey.mean(1) + 15).all()
