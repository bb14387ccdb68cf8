"""Layers that take samples themselves, and layers that take features of them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from gleak.metrics.audits.sample_inputs import takes_samples

SHAPE = (3, 4, 4)


class Flipped(nn.Module):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return 2 * inputs.flip(1) - 1


def network(*before: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*before, nn.Linear(48, 8), nn.ReLU(), nn.Linear(8, 48), nn.Linear(48, 4))


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ((nn.Flatten(),), True),
        ((nn.Flatten(), Flipped()), True),
        ((nn.Conv2d(3, 3, 3, padding=1), nn.Flatten()), False),
        ((nn.Flatten(), nn.Linear(48, 48)), False),
    ],
)
def test_features_of_as_many_values_are_no_samples(
    before: tuple[nn.Module, ...], expected: bool
) -> None:
    assert takes_samples(network(*before), str(len(before)), SHAPE) == expected


def test_later_layers_of_the_same_width_take_features() -> None:
    assert not takes_samples(network(nn.Flatten()), "4", SHAPE)


def test_what_cannot_be_followed_is_taken_for_samples() -> None:
    assert takes_samples(network(nn.Flatten()), "absent", SHAPE)
