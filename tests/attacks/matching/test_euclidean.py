"""Distances to signs compared with the formula over formed gradients."""

from __future__ import annotations

import torch

from gleak.attacks.matching.distances import Signs
from gleak.attacks.matching.pieces import FormedPiece, OuterPiece


def test_outer_products_are_measured_as_formed_ones() -> None:
    stream = torch.Generator().manual_seed(0)
    output_gradients, inputs = (torch.randn(3, 2, size, generator=stream) for size in (4, 5))
    target = torch.randn(3, 4, 5, generator=stream).sign()
    gradient = output_gradients.mT @ inputs
    expected = ((2.5 * gradient).tanh() - target).square().sum((1, 2))
    for piece in (
        OuterPiece("w", output_gradients, inputs, target),
        FormedPiece("w", gradient, target),
    ):
        torch.testing.assert_close(Signs(gain=2.5).measure([piece]), expected)


def test_a_zero_gradient_has_the_distance_one_relative_to_the_scale() -> None:
    target = torch.randn(2, 6, generator=torch.Generator().manual_seed(1)).sign()
    piece = FormedPiece("w", torch.zeros(2, 6), target)
    torch.testing.assert_close(Signs().measure([piece]), Signs().scale([target]))
