from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from gleak.artifacts.private import Private
from gleak.attacks.base import Observation
from gleak.errors import FitError
from gleak.registry import parse

Make = Callable[..., tuple[Observation, Private]]
PSNR = Callable[[np.ndarray, np.ndarray], np.ndarray]
EDGES = parse("attack", "cpa_edges")
BLIND = parse("attack", "blind")


@pytest.mark.parametrize(
    "client",
    [
        "fedsgd+batch_size=4+victims=2",
        "fedsgd+batch_size=8+victims=2",
        "fedavg+batch_size=6+victims=2+local_steps=3+local_lr=0.1",
        "fedavg+batch_size=6+victims=2+local_steps=3+local_lr=0.1+mini_batch=2+sends=weights",
    ],
)
def test_batches_of_photographs_come_out(client: str, make_photo_case: Make, psnr: PSNR) -> None:
    seen, truth = make_photo_case(EDGES, client)
    found = EDGES.reconstruct(seen)
    blind = BLIND.reconstruct(make_photo_case(BLIND, client)[0])
    reached = psnr(truth.inputs, found.inputs)
    assert (reached.mean(1) > psnr(truth.inputs, blind.inputs).mean(1) + 12).all()
    assert np.median(reached) > 28
    assert found.converged.all()


def test_grey_oblong_pictures_are_taken(make_photo_case: Make) -> None:
    """The same numbers, taken for pictures of another shape."""
    seen, truth = make_photo_case(EDGES)
    found = EDGES.reconstruct(replace(seen, input_shape=(1, 24, 32)))
    found.validate()
    assert found.inputs.shape == (*truth.inputs.shape[:2], 1, 24, 32)


def test_tables_are_refused() -> None:
    with pytest.raises(FitError, match="cpa_edges does not take tabular data"):
        EDGES.check(parse("dataset", "adult"), parse("model", "mlp"), parse("client", "fedsgd"))


def test_the_power_of_the_likelihood_counts(make_photo_case: Make) -> None:
    seen, _ = make_photo_case(EDGES)
    other = parse("attack", "cpa_edges+power=1").reconstruct(seen)
    found = EDGES.reconstruct(seen)
    assert (found.objective != other.objective).all()
    assert not np.allclose(found.inputs, other.inputs, atol=1e-3)
