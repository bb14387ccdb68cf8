"""Joined results of two attacks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import gleak
from gleak.artifacts.protocol import Protocol
from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.base import MID_GREY
from gleak.attacks.joined_results import completed, in_order, nearer
from gleak.attacks.observation import Observation

SHAPE = (3, 8, 8)


@pytest.mark.parametrize("scale", [1, 0.02])
def test_of_two_results_of_one_sample_that_with_the_nearer_gradient_is_kept(scale: float) -> None:
    """A client that clips its gradient sends a shorter one, and no image has exactly that."""
    torch.manual_seed(0)
    convolution = nn.Conv2d(3, 8, 3, stride=2, padding=1)
    network = nn.Sequential(convolution, nn.Tanh(), nn.Flatten(), nn.Linear(128, 10))
    inputs, labels = torch.rand(2, *SHAPE), torch.arange(2)
    updates = [gleak.compute_update(network, inputs[[i]], labels[[i]]) for i in range(2)]
    observation = Observation(
        update={
            name: scale * torch.stack([u[name] for u in updates])[:, None] for name in updates[0]
        },
        sent={},
        model=network.requires_grad_(False),
        modality="image",
        input_shape=SHAPE,
        classes=10,
        protocol=Protocol(),
        granted={},
        victim_ids=np.arange(2),
        seed=0,
    )
    far = (scale * inputs + 0.2 * torch.rand(inputs.shape)).clamp(0, 1)
    near = inputs + 1e-3
    first, later = torch.stack([near[0], far[1]]), torch.stack([far[0], near[1]])
    results = [
        Reconstruction(
            inputs=samples[:, None].numpy(),
            labels=labels[:, None].numpy(),
            converged=np.zeros(2, bool),
        )
        for samples in (first, later)
    ]
    kept = nearer(*results, np.arange(2), observation)
    np.testing.assert_array_equal(kept.inputs[:, 0], near.numpy())


def reconstruction(*victims: list[list[float]], converged: list[bool]) -> Reconstruction:
    inputs = np.array(victims, np.float32)[..., None]
    labels = np.zeros(inputs.shape[:2], int)
    return Reconstruction(inputs=inputs, labels=labels, converged=np.array(converged))


def test_samples_that_were_found_are_kept_and_the_others_are_taken_from_the_later_attack() -> None:
    missing = [MID_GREY] * 2
    first = reconstruction([[0, 0], [1, 1]], [[0.1, 0.9], missing], converged=[True, False])
    later = reconstruction([[0.2, 0.2], [0.1, 0.8]], converged=[True])
    found = completed(first, later, np.array([1]))
    assert np.array_equal(found.inputs[0], first.inputs[0])
    assert np.allclose(found.inputs[1, ..., 0], [[0.1, 0.9], [0.2, 0.2]])
    assert found.converged.tolist() == [True, False]


def test_a_victim_whose_samples_are_those_of_two_attacks_has_not_converged() -> None:
    missing = [MID_GREY] * 2
    first = reconstruction([[0.1, 0.9], missing], [missing, missing], converged=[False, False])
    later = reconstruction([[0.2, 0.2], [0.1, 0.8]], [[0.3, 0.3]] * 2, converged=[True, True])
    assert completed(first, later, np.arange(2)).converged.tolist() == [False, True]


def test_groups_are_joined_in_the_order_of_their_victims() -> None:
    one = reconstruction([[0.1, 0.1]], [[0.3, 0.3]], converged=[True, False])
    other = reconstruction([[0.2, 0.2]], converged=[True])
    found = in_order([one, other], [np.array([0, 2]), np.array([1])])
    assert np.allclose(found.inputs[:, 0, 0, 0], [0.1, 0.2, 0.3])
    assert found.converged.tolist() == [True, True, False]
    assert in_order([one], [np.arange(2)]) is one


def test_a_victim_whose_search_did_not_converge_is_replaced() -> None:
    first = reconstruction([[0.3, 0.3]], converged=[False])
    later = reconstruction([[0.7, 0.7]], converged=[False])
    assert np.allclose(completed(first, later, np.array([0])).inputs, 0.7)
