"""Searching codes, beside the problem in the samples themselves."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from gleak.core.registry import parse
from gleak.matching.coded import Coded
from gleak.matching.codes.bicubic import BicubicCoder
from gleak.matching.engine import match
from gleak.matching.gradient_matching import GradientMatching
from gleak.matching.parts import Parts
from gleak.observation import Observation

Observe = Callable[..., tuple[Observation, Tensor, Tensor]]
Make = Callable[[str], tuple[Coded, GradientMatching]]
SMALL = 3 * 4 * 4


@pytest.fixture
def make(make_observation: Observe, make_parts: Callable[..., Parts]) -> Make:
    """The same problem in codes and in pixels, in double precision."""

    def reparametrized(labels: str) -> tuple[Coded, GradientMatching]:
        observation, _, _ = make_observation()
        observation.model.double()
        update = {name: value.double() for name, value in observation.update.items()}
        observation = Observation(**{**vars(observation), "update": update})
        whole = GradientMatching.of(observation, make_parts(labels=labels))
        return Coded.of(whole, BicubicCoder(2, observation.input_shape)), whole

    return reparametrized


@pytest.mark.parametrize("labels", ["argmin", "joint"])
def test_derivatives_are_those_of_a_search_in_pixels_behind_the_decoder(
    labels: str, make: Make
) -> None:
    coded, whole = make(labels)
    stream = torch.Generator().manual_seed(1)
    points = torch.rand(3, coded.unknowns, generator=stream).double().requires_grad_()
    found = coded.evaluate(points)
    decoded = torch.cat([coded.inputs(points).flatten(1), points[:, coded.values :]], 1)
    expected = whole.evaluate(decoded.detach())
    (along,) = torch.autograd.grad(decoded, points, expected.gradient)
    assert torch.equal(found.objective, expected.objective)
    torch.testing.assert_close(found.gradient, along)


def test_there_are_fewer_unknowns_and_labels_are_not_coded(make: Make) -> None:
    coded, whole = make("joint")
    samples, classes = whole.shape[0], whole.classes
    assert coded.values == samples * SMALL
    assert coded.unknowns - coded.values == whole.unknowns - whole.values == samples * classes
    inputs = torch.rand(*whole.shape, dtype=torch.double)
    assert coded.point(inputs).shape == (coded.values,)


def test_victims_that_are_kept_keep_their_evaluation(make: Make) -> None:
    coded, _ = make("argmin")
    points = torch.rand(3, coded.unknowns, generator=torch.Generator().manual_seed(2)).double()
    kept = torch.tensor([True, False, True])
    some, every = coded.keep(kept).evaluate(points[kept]), coded.evaluate(points)
    torch.testing.assert_close(some.gradient, every.gradient[kept])


def test_reconstructions_are_decoded_codes(
    make_observation: Observe, make_parts: Callable[..., Parts]
) -> None:
    """Enlarged images have no detail: coding them again changes little."""
    observation, _, _ = make_observation()
    parts = make_parts(labels="argmin", code=parse("code", "bicubic+scale=2"), iterations=5)
    found = torch.from_numpy(match(observation, parts).inputs).flatten(0, 1)
    coder = BicubicCoder(2, observation.input_shape)
    gap = (coder.decode(coder.encode(found)) - found).abs().mean()
    noise = torch.rand(found.shape, generator=torch.Generator().manual_seed(0))
    assert gap < 0.3 * (coder.decode(coder.encode(noise)) - noise).abs().mean()
