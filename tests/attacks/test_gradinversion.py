"""GradInversion: the prior by statistics of batch normalisation helps, most if they are granted."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import gleak
from gleak.core.errors import IncompatibleError
from gleak.core.registry import parse
from gleak.testing.attack_contract import AttackCase, check_result, check_single_victim
from gleak.testing.tiny_cells import TinyCells

SHAPE = (3, 8, 8)


def trained() -> tuple[nn.Module, torch.Tensor]:
    """Return a network whose running statistics are those of images, and the images."""
    torch.manual_seed(0)
    images = 0.5 + 0.05 * torch.randn(64, *SHAPE).cumsum(3).clamp(-8, 8)
    network = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.BatchNorm2d(16, momentum=None),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(64, 4),
    )
    with torch.no_grad():
        network.train()(images)
    return network.eval(), images


def test_the_prior_recovers_more_than_the_gradient_alone() -> None:
    network, images = trained()
    secret = images[:4].clamp(0, 1)
    update = gleak.compute_update(network, secret, torch.arange(4))
    without, with_prior = (
        gleak.score(
            gleak.attack(f"{spec}+iterations=150", network, update, SHAPE, batch_size=4), secret
        )["psnr"]
        for spec in ("invertgrad+tv=0", "gradinversion+tv=0+batch_norm=0.1")
    )
    assert with_prior > without + 3


def test_granted_statistics_recover_more_than_running_ones_of_brighter_images() -> None:
    network, images = trained()
    secret = images[:2].clamp(0, 1) / 2
    update = gleak.compute_update(network, secret, torch.tensor([1, 2]))
    grants = {"batch_norm_statistics": gleak.batch_norm_statistics(network, secret)}
    spec = "gradinversion+tv=0+batch_norm=0.1+iterations=50"
    known = {"batch_size": 2, "grants": grants}
    running, granted = (
        gleak.score(gleak.attack(attack, network, update, SHAPE, **known), secret)["psnr"]
        for attack in (spec, f"{spec}+statistics=granted")
    )
    assert granted > running + 0.5
    with pytest.raises(IncompatibleError, match="not given: batch_norm_statistics"):
        gleak.attack(f"{spec}+statistics=granted", network, update, SHAPE, batch_size=2)


@pytest.mark.usefixtures("random_weights")
def test_granted_statistics_belong_to_each_victim(cells: TinyCells) -> None:
    case = AttackCase(cells, size=2)
    spec = parse("attack", "gradinversion+statistics=granted")
    check_result(case, spec)
    check_single_victim(case, spec)


def test_the_spec_says_whether_statistics_are_granted() -> None:
    assert parse("attack", "gradinversion").grants == set()
    granted = parse("attack", "gradinversion+labels=known+statistics=granted").grants
    assert granted == {"labels", "batch_norm_statistics"}


def test_updates_of_some_samples_are_refused_as_the_statistics_are_of_all() -> None:
    levels = parse("dataset", "photos"), parse("model", "resnet20")
    client = parse("client", "epochs+batch_size=4+update_size=2")
    parse("attack", "gradinversion").check(*levels, client)
    with pytest.raises(IncompatibleError, match=r"granted of all 4 .*use statistics=running"):
        parse("attack", "gradinversion+statistics=granted").check(*levels, client)


def test_models_without_batch_normalisation_are_refused_from_their_specs() -> None:
    levels = parse("dataset", "photos"), parse("model", "lenet"), parse("client", "fedsgd")
    for source in ("running", "granted"):
        with pytest.raises(IncompatibleError, match=f"{source} statistics.*use norm=batch"):
            parse("attack", f"gradinversion+statistics={source}").check(*levels)
