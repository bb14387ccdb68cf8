from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from gleak.artifacts.private import Private
from gleak.core.registry import parse
from gleak.observation import Observation
from gleak.unmixing.mixtures import White

Make = Callable[..., tuple[Observation, Private]]
PSNR = Callable[[np.ndarray, np.ndarray], np.ndarray]
TUNED = "cpa+iterations=300+lr=0.01+tv=10+mi=0.1"
BLIND = parse("attack", "blind")
SHAPE = (1, 3, 4)


@pytest.mark.parametrize(
    "client", ["fedsgd+batch_size=4+victims=2", "fedsgd+batch_size=8+victims=2"]
)
def test_photographs_come_out_better_than_blindly(
    client: str, make_photo_case: Make, psnr: PSNR
) -> None:
    spec = parse("attack", TUNED)
    seen, truth = make_photo_case(spec, client)
    found = spec.reconstruct(seen)
    blind = BLIND.reconstruct(make_photo_case(BLIND, client)[0])
    reached = psnr(truth.inputs, found.inputs).mean(1)
    assert (reached > psnr(truth.inputs, blind.inputs).mean(1) + 4).all()
    assert (found.iterations == 300).all()


def test_the_total_variation_is_what_tells_photographs_apart(
    make_photo_case: Make, psnr: PSNR
) -> None:
    """CPA Table IV: without it quality falls far."""
    with_it, without = parse("attack", TUNED), parse("attack", f"{TUNED}".replace("tv=10", "tv=0"))
    seen, truth = make_photo_case(with_it)
    better, worse = (
        psnr(truth.inputs, spec.reconstruct(seen).inputs).mean() for spec in (with_it, without)
    )
    assert better > worse + 3


def test_total_variation_is_of_images_alone() -> None:
    white = White(torch.zeros(1, 2, 12), torch.zeros(1, 2, 1), torch.zeros(1, 2, 2))
    spec = parse("attack", "cpa")
    assert set(spec.priors(white, SHAPE)) == {"tv"}
    assert set(spec.priors(white, (12,))) == set()


def test_tables_are_unmixed_by_the_other_terms(make_case: Make) -> None:
    spec = parse("attack", "cpa+iterations=20")
    seen, truth = make_case(spec, "tabular", client="fedsgd+batch_size=3+victims=2")
    found = spec.reconstruct(seen)
    found.validate()
    assert found.inputs.shape == truth.inputs.shape
