"""What features are of greys."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from gleak.core.errors import IncompatibleError
from gleak.crafting.mkor_network import grey_responses
from gleak.models.chain import decompose

SHAPE = (3, 16, 16)
Untrained = Callable[..., nn.Module]
MODELS = (
    "vgg_small+width=4+hidden=16",
    "vgg_small+width=4+hidden=16+activation=tanh+norm=batch",
    "lenet5",
)


@pytest.mark.parametrize("model", MODELS)
def test_responses_are_what_the_first_dense_layer_is_given_of_grey_images(
    untrained: Untrained, model: str
) -> None:
    network = untrained(model, SHAPE)
    chain, channels = decompose(network), torch.tensor([5, 0, 3])
    found = grey_responses(network, chain, channels, SHAPE)
    assert found["responses"].shape[:2] == (len(found["levels"]), 3)
    for number in (0, len(found["levels"]) // 2, -1):
        given = []
        hook = chain.dense[0].layer.register_forward_pre_hook(
            lambda _, got, into=given: into.extend(got)
        )
        network(torch.full((1, *SHAPE), found["levels"][number]))
        hook.remove()
        maps = given[0].reshape(chain.convolutions[-1].layer.out_channels, -1)[channels]
        expected = maps.reshape(found["responses"][number].shape)
        np.testing.assert_allclose(found["responses"][number], expected.detach(), atol=1e-6)


@pytest.mark.parametrize(
    ("activation", "curved"), [("relu", False), ("leaky_relu", False), ("sigmoid", True)]
)
def test_curves_are_known_at_many_intensities_and_straight_lines_at_their_ends(
    untrained: Untrained, activation: str, curved: bool
) -> None:
    network = untrained(f"{MODELS[0]}+activation={activation}", SHAPE)
    levels = grey_responses(network, decompose(network), torch.arange(2), SHAPE)["levels"]
    assert levels[[0, -1]].tolist() == [0, 1]
    assert (np.diff(levels) > 0).all()
    assert (len(levels) > 2) == curved


def test_a_network_that_lets_nothing_through_is_refused(untrained: Untrained) -> None:
    network = untrained(MODELS[0], SHAPE)
    chain = decompose(network)
    nn.init.zeros_(chain.convolutions[2].layer.weight)
    with pytest.raises(
        IncompatibleError, match=r"after 6 convolutions black and white images have the same.*beta"
    ):
        grey_responses(network, chain, torch.arange(2), SHAPE)
