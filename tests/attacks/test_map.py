"""Maximum a posteriori estimates: labels, budgets, and what the search finds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from gleak.artifacts.private import Private
from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.map import MAP, OF_IMAGES, optimizer_for
from gleak.attacks.matching.codes import Whitened
from gleak.attacks.matching.distances import ProfileLikelihood
from gleak.attacks.matching.line_search import LineSearchLBFGS
from gleak.attacks.matching.optimizers import OptimizerSpec
from gleak.attacks.matching.posterior import Posterior
from gleak.attacks.observation import Observation
from gleak.testing.tiny_cells import TinyCells
from tests.attacks.cases import Make, holding, natural_images, psnr

SHAPE = (3, 8, 8)


def compared(
    attack: MAP, seen: Observation, **parts: Any
) -> tuple[Posterior, Reconstruction, Reconstruction]:
    """Return the posterior, the attack's result, and that of one plain search with these parts."""
    found, posterior = attack.reconstruct(seen), Posterior.of(seen, attack.parts())
    return posterior, found, posterior.search(found.labels, attack.iterations, **parts)


def test_it_needs_no_grant_and_searches_whitened_images() -> None:
    attack = MAP()
    assert not attack.grants
    assert attack.parts().labels == "enumerated"
    assert isinstance(attack.parts().code, Whitened)
    assert isinstance(attack.parts().distance, ProfileLikelihood)
    assert attack.summary().labels == "the most probable"


@pytest.mark.parametrize(("evaluations", "iterations"), [(9, 9), (4800, 400)])
def test_a_proposal_has_no_more_than_its_own_budget(
    evaluations: int, iterations: int, cells: TinyCells
) -> None:
    seen = cells.observe(cells.simulate(), MAP())
    (proposed,) = MAP().proposals(seen, evaluations)
    assert proposed.iterations == iterations


def test_of_a_smooth_network_a_natural_image_is_found(make_case: Make) -> None:
    attack = MAP(iterations=60)
    seen, _ = make_case(attack, client="fedsgd+victims=2")
    inputs, labels = natural_images(2, SHAPE).numpy()[:, None], np.array([[1], [3]])
    update = holding(seen, inputs, labels).update
    shaped = {name: value.view(seen.update[name].shape) for name, value in update.items()}
    seen = replace(seen, update=shaped)
    found = attack.reconstruct(seen)
    np.testing.assert_array_equal(found.labels, labels)
    assert found.paired
    assert np.asarray(found.evaluations).max() <= 61
    assert psnr(inputs, found.inputs).min() > psnr(inputs, 0 * inputs + 0.5).min() + 3


def test_evaluations_include_those_of_the_labels_that_are_enumerated(cells: TinyCells) -> None:
    folder = cells.simulate("image", client="fedsgd+victims=2", defense="random_mask+keep=0.5")
    seen, attack = cells.observe(folder, MAP()), MAP(iterations=2)
    _, spent = Posterior.of(seen, attack.parts()).likely_labels()
    found = attack.reconstruct(seen)
    assert (np.asarray(found.evaluations) == spent + 3).all()
    assert (spent > 0).all()
    np.testing.assert_array_equal(found.labels, Private.read(folder / "private.h5").labels)


def test_what_variational_layers_draw_is_searched(cells: TinyCells) -> None:
    folder = cells.simulate("image", model="lenet+width=4+precode=5", client="fedsgd+victims=2")
    seen = cells.observe(folder, MAP())
    (proposed,) = MAP().proposals(seen.of_victim(0), 4)
    assert proposed.draws == "searched"
    assert proposed.reconstruct(seen).inputs.shape == (2, 1, *SHAPE)


def test_tables_are_searched_without_a_code(cells: TinyCells) -> None:
    folder = cells.simulate("tabular", client="fedsgd+victims=2")
    found = MAP(iterations=30).reconstruct(cells.observe(folder, MAP()))
    truth = Private.read(folder / "private.h5")
    np.testing.assert_array_equal(found.labels, truth.labels)
    assert np.abs(found.inputs - truth.inputs).mean() < 0.1
    assert torch.isfinite(torch.from_numpy(np.asarray(found.objective))).all()


def test_on_networks_with_kinks_it_goes_on_where_l_bfgs_ends(cells: TinyCells) -> None:
    folder = cells.simulate(
        "image", model="lenet+width=4+activation=relu", client="fedsgd+victims=4"
    )
    seen, attack = cells.observe(folder, MAP()), MAP(iterations=100)
    posterior, found, other = compared(attack, seen)
    reached, ended = (posterior.criterion(one.inputs, one.labels) for one in (found, other))
    assert np.mean(reached) < np.mean(ended)


@pytest.mark.parametrize(
    ("model", "defense", "optimizer"),
    [
        ("lenet+width=4", "quantize", LineSearchLBFGS()),
        ("lenet+width=4", "none", OF_IMAGES),
        ("lenet+width=4+activation=relu", "quantize", OF_IMAGES),
    ],
)
def test_images_are_searched_by_adam_but_those_of_rounded_smooth_gradients(
    model: str, defense: str, optimizer: OptimizerSpec, cells: TinyCells
) -> None:
    folder = cells.simulate("image", model=model, defense=defense, client="fedsgd+victims=1")
    assert optimizer_for(cells.observe(folder, MAP())) == optimizer


def test_of_rounded_gradients_l_bfgs_finds_better_photographs_than_adam(
    make_photo_case: Make,
) -> None:
    attack, choices = MAP(iterations=100), {"model": "lenet+width=4", "defense": "quantize"}
    seen, truth = make_photo_case(attack, "fedsgd+victims=4", **choices)
    posterior, found, other = compared(attack, seen, optimizer=OF_IMAGES)
    reached, ended = (posterior.criterion(one.inputs, one.labels) for one in (found, other))
    assert (reached < ended).all()
    assert psnr(truth.inputs, found.inputs).mean() > psnr(truth.inputs, other.inputs).mean() + 1


@pytest.mark.parametrize(
    ("model", "defense", "is_begun"),
    [
        ("vgg_small+width=4+hidden=8", "none", True),
        ("vgg_small+width=4+hidden=8", "soteria", True),
        ("vgg_small+width=4+hidden=8", "topk", False),
        ("vgg_small+width=4+hidden=8", "quantize", False),
        ("lenet+width=4+activation=relu", "none", False),
        ("fc2+hidden=8", "none", False),
    ],
)
def test_a_hidden_dense_layer_behind_kinked_convolutions_is_left_out_at_first(
    model: str, defense: str, is_begun: bool, cells: TinyCells
) -> None:
    folder = cells.simulate("image", model=model, defense=defense, client="fedsgd+victims=1")
    seen = cells.observe(folder, MAP())
    (proposed,) = MAP().proposals(seen, 4800)
    assert proposed.iterations == (1200 if is_begun else 400)
    first = MAP(iterations=30).begun_by(seen)
    assert (first is not None) == is_begun
    if first is not None:
        assert (first.skip, first.compared, first.iterations) == ("first_dense", "sent", 20)
        found = MAP(iterations=30).reconstruct(seen)
        assert (np.asarray(found.evaluations) == 20 + 1 + 10 + 1).all()
    assert MAP(skip="classifier").begun_by(seen) is None


def test_without_the_hidden_dense_layer_at_first_photographs_are_nearer(
    make_photo_case: Make,
) -> None:
    attack, model = MAP(iterations=240), "vgg_small+width=8+hidden=64"
    seen, truth = make_photo_case(attack, "fedsgd+victims=4", model=model)
    _, found, other = compared(attack, seen, optimizer=OF_IMAGES)
    gain = psnr(truth.inputs, found.inputs).mean() - psnr(truth.inputs, other.inputs).mean()
    assert gain > 0.5
