from __future__ import annotations

import torch
from torch import Tensor, nn

from gleak.models.resnet_layers import ActivatedResidual


class Times(nn.Module):
    """The inputs, multiplied."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, inputs: Tensor) -> Tensor:
        return self.factor * inputs


def test_a_block_activates_the_sum_of_body_and_shortcut() -> None:
    body = {"first": Times(2), "second": Times(-3)}
    block = ActivatedResidual(body, Times(5), nn.ReLU())
    inputs = torch.tensor([1.0, -1.0])
    assert block(inputs).tolist() == [0, 1]
    assert [name for name, _ in block.named_children()][:2] == ["first", "second"]
