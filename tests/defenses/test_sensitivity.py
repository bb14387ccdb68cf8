from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from gleak.core.registry import parse
from gleak.defenses import soteria
from gleak.defenses.soteria import estimated_norms, exact_norms, sensitivities
from gleak.models import batching
from gleak.models.layer_search import features_before, first_dense_input
from gleak.runtime.seeding import drawing_from

IMAGES = torch.rand(3, 3, 8, 8, generator=torch.Generator().manual_seed(0))
NAMES = ["lenet+width=2", "resnet20+width=1", "vgg_small+width=2+hidden=6", "fc2"]


def network(name: str) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model: nn.Module = parse("model", name).build(tuple(IMAGES.shape[1:]), 4)
    return model.eval()


def features_of(model: nn.Module) -> soteria.Features:
    entry = first_dense_input(model, IMAGES)
    assert entry is not None
    return features_before(model, entry.layer)


@pytest.mark.parametrize("name", NAMES)
def test_lengths_are_those_of_the_rows_of_the_jacobian(name: str) -> None:
    features = features_of(network(name))
    for image, lengths in zip(IMAGES, exact_norms(features, IMAGES), strict=True):
        jacobian = torch.autograd.functional.jacobian(features, image[None]).flatten(2)
        torch.testing.assert_close(lengths, jacobian[0].norm(dim=1), rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("name", ["lenet+width=2", "vgg_small+width=2+hidden=6"])
@pytest.mark.parametrize("probes", [16, 256])
def test_estimates_deviate_as_little_as_stated(name: str, probes: int) -> None:
    """The mean square of so many relative errors is far below four times its expectation."""
    features = features_of(network(name))
    exact = exact_norms(features, IMAGES)
    with drawing_from(torch.Generator().manual_seed(2)):
        estimate = estimated_norms(features, IMAGES, probes)
    alive = exact > 0
    assert (estimate[~alive] == 0).all()
    errors = (estimate / exact - 1)[alive]
    assert 0 < errors.square().mean().sqrt() < 2 / np.sqrt(2 * probes)


def test_rows_with_one_entry_are_estimated_without_error() -> None:
    features = features_of(network("fc2"))
    assert torch.equal(estimated_norms(features, IMAGES, 1), torch.ones(3, 192))


@pytest.mark.parametrize("at_once", [1, 2])
def test_samples_and_elements_in_parts_give_the_same_sums(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = network("lenet+width=2")
    entry = first_dense_input(model, IMAGES)
    assert entry is not None
    whole = sensitivities(model, entry, IMAGES, None)
    monkeypatch.setattr(batching, "VALUES", at_once * IMAGES[0].numel())
    torch.testing.assert_close(sensitivities(model, entry, IMAGES, None), whole)
