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
from gleak.attacks.matching.unsent_values import STEPS, WRONG, Censored, Unsent, unsent_values
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


def dark_columns(values: Tensor) -> Tensor:
    """The mask of the pixels of the first layer that are darkest in both images, and of others."""
    if values.shape[-1] != IMAGES[0, 0].size:
        return torch.ones_like(values).bool()
    pixels = torch.from_numpy(IMAGES).amax((0, 1)).flatten()
    return (pixels <= pixels.quantile(0.2)).expand_as(values)


@pytest.fixture
def masked(make_observation: Callable[..., Any]) -> Masked:
    """The posterior of a client with two images of whose gradient a part was sent."""

    def make(
        mask: Callable[[Tensor], Tensor] = largest,
        images: np.ndarray = IMAGES,
        **protocol: Any,
    ) -> Posterior:
        seen, _, _ = make_observation("fc2+hidden=64", victims=1, samples=2)
        seen = replace(holding(seen, images, LABELS), granted={})
        sent = {name: mask(value) for name, value in seen.update.items()}
        update = {name: value * sent[name] for name, value in seen.update.items()}
        seen = replace(seen, update=update, sent=sent)
        seen = replace(seen, protocol=replace(seen.protocol, **protocol))
        (attack,) = MAP().proposals(seen, 100)
        return Posterior.of(seen, attack.parts())

    return make


def by_formula(posterior: Posterior, inputs: np.ndarray) -> float:
    """The sum over every value that was not sent."""
    problem, errors, power, count, unsent = posterior.problem, 0.0, 0.0, 0, []
    for name, gradient in posterior.gradients(inputs, LABELS).items():
        mask = problem.sent[name].bool().numpy()
        values, found = problem.observed[name].numpy()[mask], gradient.numpy()
        errors += ((values - found[mask]) ** 2).sum()
        power, count = power + (values**2).sum(), count + len(values)
        unsent.append(np.abs(values).min() - np.abs(found[~mask]))
    sizes = STEPS * np.sqrt((errors + ROUNDING * power) / count)
    own = count * np.log(STEPS) + count / 2 / STEPS**2
    distances = np.concatenate(unsent)
    tails = [-np.log((1 - WRONG) * norm.cdf(distances / size) + WRONG).sum() for size in sizes]
    return float((own + tails).min() - own.min())


@pytest.mark.parametrize("factor", [0.5, 1.1, 1.5])
def test_it_is_the_likelihood_of_a_censored_observation(masked: Masked, factor: float):
    posterior, inputs = masked(), IMAGES * np.float32(factor)
    found = unsent_values(posterior, inputs, LABELS)
    assert found.added == pytest.approx(by_formula(posterior, inputs), rel=1e-3, abs=0.1)


def test_it_is_little_of_the_truth_and_much_of_samples_whose_unsent_values_are_large(
    masked: Masked,
):
    posterior = masked()
    truth = unsent_values(posterior, IMAGES, LABELS)
    assert truth.by_size and truth.larger == 0 and truth.added == pytest.approx(0, abs=20)
    grey = unsent_values(posterior, np.full_like(IMAGES, 0.5), LABELS)
    assert grey.by_size and grey.added > 100


def test_a_value_that_is_wrong_counts_little_even_without_noise():
    values = Censored.of(torch.tensor([0.1, 0.5, 7.0]), torch.tensor(1.0))
    assert (values.larger, values.smaller) == (1, 2)
    assert values.unlikelihood(1e-6) == pytest.approx(-np.log(WRONG), rel=1e-3)


@pytest.mark.parametrize("mask", [at_random, dark_columns], ids=["values", "columns"])
@pytest.mark.parametrize("brightness", [0, 0.4], ids=["dark", "bright"])
def test_values_that_are_missing_at_random_or_of_bright_pixels_are_not_left_out_by_size(
    masked: Masked, mask: Callable[[Tensor], Tensor], brightness: float
):
    images = (IMAGES * (1 - brightness) + brightness).astype(np.float32)
    posterior = masked(mask, images=images)
    assert not unsent_values(posterior, images, LABELS).by_size
    assert not unsent_values(posterior, 0.7 * images, LABELS).by_size


@pytest.mark.parametrize(
    ("mask", "protocol"),
    [(largest, {"clipping": "update"}), (torch.ones_like, {})],
    ids=["unknown factor", "all sent"],
)
def test_it_is_nothing_where_values_tell_nothing(
    masked: Masked, mask: Callable[[Tensor], Tensor], protocol: dict[str, str]
):
    posterior = masked(lambda values: mask(values).bool(), **protocol)
    assert unsent_values(posterior, np.full_like(IMAGES, 0.5), LABELS) == Unsent()
