"""What values that were not sent add to the criterion, against the formula over all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import norm
from torch import Tensor

from gleak.attacks.map import MAP
from gleak.attacks.matching.distances import ROUNDING
from gleak.attacks.matching.posterior import Posterior
from gleak.attacks.matching.unsent_values import STEPS, unsent_criterion
from tests.attacks.cases import holding, natural_images

SHAPE = (3, 8, 8)
LABELS = np.array([[1, 3]])
IMAGES = natural_images(2, SHAPE)[None].numpy()
Masked = Callable[..., Posterior]


def largest(values: Tensor) -> Tensor:
    """The mask of the largest tenth of a parameter's values."""
    return values.abs() >= values.abs().flatten().quantile(0.9)


def at_random(values: Tensor) -> Tensor:
    return torch.rand(values.shape, generator=torch.Generator().manual_seed(0)) < 0.1


@pytest.fixture
def masked(make_observation: Callable[..., Any]) -> Masked:
    """The posterior of a client with two images of whose gradient a part was sent."""

    def make(mask: Callable[[Tensor], Tensor] = largest, **protocol: Any) -> Posterior:
        seen, _, _ = make_observation("fc2+hidden=64", victims=1, samples=2)
        seen = replace(holding(seen, IMAGES, LABELS), granted={})
        sent = {name: mask(value) for name, value in seen.update.items()}
        update = {name: value * sent[name] for name, value in seen.update.items()}
        seen = replace(seen, update=update, sent=sent)
        seen = replace(seen, protocol=replace(seen.protocol, **protocol))
        (attack,) = MAP().proposals(seen, 100)
        return Posterior.of(seen, attack.parts())

    return make


def by_formula(posterior: Posterior, inputs: np.ndarray) -> float:
    """The sum over every value of the parameters that are large enough to tell their mask."""
    problem, errors, power, count, unsent = posterior.problem, 0.0, 0.0, 0, []
    for name, gradient in posterior.gradients(inputs, LABELS).items():
        mask = problem.sent[name].bool().numpy()
        values, found = problem.observed[name].numpy()[mask], gradient.numpy()
        errors += ((values - found[mask]) ** 2).sum()
        power, count = power + (values**2).sum(), count + len(values)
        if len(values) > 100:
            unsent.append(np.abs(values).min() - np.abs(found[~mask]))
    sizes = STEPS * np.sqrt((errors + ROUNDING * power) / count)
    own = count * np.log(STEPS) + count / 2 / STEPS**2
    tails = [-norm.logcdf(np.concatenate(unsent)[:, None] / size).sum() for size in sizes]
    return float((own + tails).min() - own.min())


@pytest.mark.parametrize("factor", [0.5, 1.1, 1.5])
def test_it_is_the_likelihood_of_a_censored_observation(masked: Masked, factor: float):
    posterior, inputs = masked(), IMAGES * np.float32(factor)
    found = unsent_criterion(posterior, inputs, LABELS)
    assert found == pytest.approx(by_formula(posterior, inputs), rel=1e-3)


def test_it_is_none_of_the_truth_and_much_of_samples_whose_unsent_values_are_large(masked: Masked):
    posterior = masked()
    assert unsent_criterion(posterior, IMAGES, LABELS) == pytest.approx(0, abs=1)
    grey = np.full_like(IMAGES, 0.5)
    assert unsent_criterion(posterior, grey, LABELS) > 100


@pytest.mark.parametrize(
    ("mask", "protocol"),
    [(at_random, {}), (largest, {"clipping": "update"}), (torch.ones_like, {})],
    ids=["random positions", "unknown factor", "all sent"],
)
def test_it_is_zero_where_values_were_not_left_out_by_their_size(
    masked: Masked, mask: Callable[[Tensor], Tensor], protocol: dict[str, str]
):
    posterior = masked(lambda values: mask(values).bool(), **protocol)
    assert unsent_criterion(posterior, np.full_like(IMAGES, 0.5), LABELS) == 0
