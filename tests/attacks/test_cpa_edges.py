from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from gleak.artifacts.private import Private
from gleak.attacks.cpa_edges import find_flat_images
from gleak.attacks.observation import Observation
from gleak.core.errors import IncompatibleError
from gleak.core.registry import parse

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
    with pytest.raises(IncompatibleError, match="cpa_edges does not take tabular data"):
        EDGES.check(parse("dataset", "adult"), parse("model", "mlp"), parse("client", "fedsgd"))


def test_the_power_of_the_likelihood_counts(make_photo_case: Make) -> None:
    seen, _ = make_photo_case(EDGES)
    other = parse("attack", "cpa_edges+power=1").reconstruct(seen)
    found = EDGES.reconstruct(seen)
    assert (found.objective != other.objective).all()
    assert not np.allclose(found.inputs, other.inputs, atol=1e-3)


BATCH_OF_8 = "fedsgd+batch_size=8+victims=2"
COLOURS = {"grey": (0.7, 0.7, 0.7), "black": (0, 0, 0), "a colour": (0.1, 0.5, 0.8)}


def holding(
    seen: Observation, inputs: np.ndarray, labels: np.ndarray, client: str = BATCH_OF_8
) -> Observation:
    """Return the observation of clients with these samples."""
    network = seen.model.requires_grad_()
    spec = parse("client", client)
    sent = [
        spec.compute(network, own, told)
        for own, told in zip(torch.from_numpy(inputs), torch.from_numpy(labels), strict=True)
    ]
    network.requires_grad_(False)
    update = {name: torch.stack([each[name].detach() for each in sent]) for name in sent[0]}
    return replace(seen, update=update)


@pytest.mark.parametrize("colour", COLOURS.values(), ids=COLOURS)
def test_an_image_of_one_colour_is_found_and_harms_no_other(
    colour: tuple[float, float, float], make_photo_case: Make, psnr: PSNR
) -> None:
    seen, truth = make_photo_case(EDGES, BATCH_OF_8)
    inputs = truth.inputs.copy()
    inputs[1, 3] = np.array(colour)[:, None, None]
    found = EDGES.reconstruct(holding(seen, inputs, truth.labels))
    reached = psnr(inputs, found.inputs)
    others = np.delete(np.arange(8), 3)
    without = psnr(truth.inputs, EDGES.reconstruct(seen).inputs)
    assert reached[1, 3] > 80
    assert (reached[1, others] > without[1, others] - 6).all()
    assert np.median(reached[1, others]) > 28
    assert found.converged.all()


def test_of_local_steps_the_image_of_one_colour_is_found_too(
    make_photo_case: Make, psnr: PSNR
) -> None:
    client = "fedavg+batch_size=6+victims=2+local_steps=3+local_lr=1"
    seen, truth = make_photo_case(EDGES, client)
    inputs = truth.inputs.copy()
    inputs[:, 2] = 0.7
    found = EDGES.reconstruct(holding(seen, inputs, truth.labels, client))
    found.validate()
    assert (psnr(inputs, found.inputs)[:, 2] > 40).all()


def test_of_two_images_that_are_the_same_one_is_found(make_photo_case: Make, psnr: PSNR) -> None:
    seen, truth = make_photo_case(EDGES, BATCH_OF_8)
    inputs = truth.inputs.copy()
    inputs[1, 5] = inputs[1, 2]
    found = EDGES.reconstruct(holding(seen, inputs, truth.labels))
    reached = psnr(inputs, found.inputs)[1]
    without = psnr(truth.inputs, EDGES.reconstruct(seen).inputs)[1]
    others = np.delete(np.arange(8), [2, 5])
    assert (reached[others] > without[others] - 6).all()
    assert max(reached[2], reached[5]) > 18
    assert (found.inputs == 0.5).all((2, 3, 4)).sum(1).tolist() == [0, 1]
    assert found.converged.tolist() == [True, False]


def test_where_all_images_differ_nothing_is_taken_away(make_photo_case: Make) -> None:
    for client in (BATCH_OF_8, "fedavg+batch_size=6+victims=2+local_steps=3+local_lr=0.1"):
        seen, _ = make_photo_case(EDGES, client)
        assert find_flat_images(seen, EDGES.mixture(seen)) == {}
