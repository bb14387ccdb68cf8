"""Small networks, and what views of an image show by definition."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor, nn

from gleak.core.registry import parse
from gleak.crafting.mkor_views import View, Windows

CLASSES = 4


@pytest.fixture(scope="session")
def windows_shown() -> Callable[..., Tensor]:
    """Compute the views of images window by window, padded with zeros; Shape (M, K, P, P)."""

    def show(images: Tensor, views: Sequence[View], windows: Windows, pooled: bool) -> Tensor:
        beside = windows.side
        padded = nn.functional.pad(torch.stack([images, 1 - images]), [beside] * 4)
        shown = []
        for view in views:
            image = padded[int(view.reversed), :, view.colour]
            for row in range(windows.values):
                for column in range(windows.values):
                    first = beside + view.row + windows.scale * row
                    left = beside + view.column + windows.scale * column
                    window = image[:, first : first + windows.extent, left : left + windows.extent]
                    shown.append(window.amax((1, 2)) if pooled else window.mean((1, 2)))
        shape = (len(views), windows.values, windows.values)
        return torch.stack(shown, 1).unflatten(1, shape)

    return show


@pytest.fixture(scope="session")
def untrained() -> Callable[..., nn.Module]:
    """A network in evaluation mode; batch normalisation as if trained, of either sign."""

    def build(model: str, shape: Sequence[int], classes: int = CLASSES) -> nn.Module:
        torch.manual_seed(0)
        network = parse("model", model).build(tuple(shape), classes)
        for layer in network.modules():
            if isinstance(layer, nn.BatchNorm2d):
                nn.init.normal_(layer.running_mean, std=0.3)
                nn.init.uniform_(layer.running_var, 0.5, 2)
                nn.init.uniform_(layer.weight, 0.5, 2)
                nn.init.normal_(layer.bias, std=0.3)
                layer.weight.data[::2] *= -1
        return network.eval()

    return build
