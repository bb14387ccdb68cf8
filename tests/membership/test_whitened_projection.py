from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import norm

from gleak.core.registry import parse
from gleak.membership.base import Candidates
from gleak.membership.gradient_rows import all_rows, update_vectors
from gleak.membership.whitened_projection import Background
from tests.membership.conftest import MakeVictims

SPEC = parse("membership", "whitened_projection")
TRIALS, AT_ONCE = 10_000, 1000


@pytest.fixture(scope="module")
def rows() -> torch.Tensor:
    """Gradients of twelve references, whose directions differ in length."""
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randn(12, 40, generator=generator, dtype=torch.float64)
    return drawn * torch.linspace(3, 0.1, 40, dtype=torch.float64)


def test_the_directions_are_those_of_the_covariance_of_a_mean(rows: torch.Tensor) -> None:
    background = Background.of(rows, batch_size=5)
    covariance = background.directions.T * background.variances @ background.directions
    torch.testing.assert_close(covariance, torch.cov(rows.T) / 5)
    torch.testing.assert_close(background.mean, rows.mean(0))


def test_the_estimate_is_the_noise_outside_of_the_references(rows: torch.Tensor) -> None:
    """Of noise alone, for references of many directions; an average over many updates."""
    background = Background.of(rows, batch_size=5)
    generator = torch.Generator().manual_seed(1)
    noise = 0.3 * torch.randn(4000, 40, generator=generator, dtype=torch.float64)
    updates = background.mean + 7 * background.directions[0] + noise
    assert background.noise(updates).mean() == pytest.approx(0.09, rel=0.02)


def test_it_is_the_quotient_of_quadratic_forms(make_victims: MakeVictims) -> None:
    """As computed with the whole covariance, for a table whose network is small."""
    observation, candidates, _ = make_victims(modality="tabular")
    found = SPEC.infer(observation, candidates)
    references = all_rows(observation, candidates.reference_inputs, candidates.reference_labels)
    gradients = all_rows(observation, candidates.inputs, candidates.labels).double()
    mean, batch = references.double().mean(0), observation.batch_size
    background = Background.of(references, batch)
    updates = update_vectors(observation)
    for victim, noise in enumerate(background.noise(updates)):
        values = len(mean)
        covariance = torch.cov(references.double().T) / batch + noise * torch.eye(values)
        centred = gradients[candidates.positions[victim]] - mean
        whitened = torch.linalg.solve(covariance, centred.T).T
        shift = updates[victim].double() - mean
        expected = (whitened @ shift) / (whitened * centred).sum(1).sqrt()
        np.testing.assert_allclose(found[victim], expected, rtol=1e-3, atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("ratio", [0.5, 1.0, 2.0])
def test_noise_on_a_known_candidate_leaves_the_rate_of_the_closed_form(
    ratio: float, make_victims: MakeVictims
) -> None:
    """TPR = Phi(Phi^-1(FPR) + 1 / z), z the noise over the length of the gradient.

    The threshold is that of a standard normal statistic, as one of 10,000 trials is not exact.
    """
    observation, candidates, _ = make_victims(client="fedsgd+batch_size=1+victims=3")
    one = candidates.of_victim(0)
    known = Candidates(
        one.inputs[:1], one.labels[:1], torch.zeros(AT_ONCE, 1, dtype=torch.long),
        one.inputs[:0], one.labels[:0],
    )  # fmt: skip
    gradient = all_rows(observation, known.inputs, known.labels)[0]
    generator = torch.Generator().manual_seed(2)
    evidence = []
    for _ in range(2 * TRIALS // AT_ONCE):
        noise = torch.randn(AT_ONCE, len(gradient), generator=generator) * ratio * gradient.norm()
        updates = noise + (len(evidence) % 2) * gradient
        parts = updates.split([value[0, 0].numel() for value in observation.update.values()], 1)
        sent = {
            name: part.reshape(AT_ONCE, 1, *value.shape[2:])
            for part, (name, value) in zip(parts, observation.update.items(), strict=True)
        }
        victims = replace(observation, update=sent, victim_ids=np.arange(AT_ONCE))
        evidence.append(SPEC.infer(victims, known)[:, 0])
    outside, inside = np.concatenate(evidence[::2]), np.concatenate(evidence[1::2])
    for rate in (0.01, 0.1):
        threshold = norm.ppf(1 - rate)
        deviation = (rate * (1 - rate) / TRIALS) ** 0.5
        assert (outside > threshold).mean() == pytest.approx(rate, abs=4 * deviation)
        expected = norm.cdf(1 / ratio - threshold)
        assert (inside > threshold).mean() == pytest.approx(expected, abs=0.02)
