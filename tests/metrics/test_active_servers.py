"""Shares that a crafting server recovers, and is expected to recover."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gleak.artifacts.private import Private
from gleak.artifacts.reconstruction import Reconstruction
from gleak.core.registry import parse
from gleak.metrics.score import match_to_truth, measure
from tests.attacks.cases import natural_images

LEVELS = {"model": "planted+bins=10", "crafting": "imprint", "attack": "imprint"}


@pytest.fixture
def truth() -> Private:
    """One sum of two clients, of two images each."""
    images = natural_images(4, (3, 16, 16)).numpy()[None]
    return Private(
        inputs=images,
        labels=np.array([[0, 1, 2, 3]]),
        indices=np.arange(4)[None],
        clients=np.array([[0, 0, 1, 1]]),
    )


@pytest.fixture
def found(truth: Private) -> Reconstruction:
    """Three of four images, one of them at the wrong client; the fourth was not found."""
    inputs = truth.inputs[:, [2, 0, 3, 1]].copy()
    inputs[0, 3] = 0.5
    return Reconstruction(
        inputs=inputs,
        labels=np.zeros((1, 4), dtype=int),
        converged=np.zeros(1, dtype=bool),
        averaged_count=np.array([[1, 1, 1, 0]]),
        clients=np.array([[0, 0, 1, 1]]),
    )


def test_images_count_as_recovered_and_at_their_client(
    truth: Private, found: Reconstruction
) -> None:
    compared = match_to_truth(truth, found)
    assert measure(parse("metric", "recovered"), compared).tolist() == [0.75]
    assert measure(parse("metric", "attributed"), compared).tolist() == [0.5]


def test_attribution_is_of_attacks_that_name_clients(truth: Private, found: Reconstruction) -> None:
    metric = parse("metric", "attributed")
    assert not metric.applies(match_to_truth(truth, replace(found, clients=None)))
    assert not metric.applies(match_to_truth(truth, None))


def test_expected_share_is_that_of_all_samples_of_the_sum(
    truth: Private, found: Reconstruction
) -> None:
    metric = parse("metric", "expected_share")
    compared = match_to_truth(truth, found, levels=LEVELS)
    assert measure(metric, compared) == pytest.approx([0.9**3])
    kernels = {"model": "planted_kernels+bins=10", "crafting": "loki", "attack": "loki"}
    assert measure(metric, replace(compared, levels=kernels)) == pytest.approx([0.9])


@pytest.mark.parametrize("attack", ["blind", "qbi"])
def test_other_attacks_have_no_expected_share(
    truth: Private, found: Reconstruction, attack: str
) -> None:
    metric, levels = parse("metric", "expected_share"), {**LEVELS, "attack": attack}
    assert not metric.applies(match_to_truth(truth, found, levels=levels))
    assert not metric.applies(match_to_truth(truth, None, levels=LEVELS))
