"""Rows of zeros that make a sample's outputs independent of how many others are computed beside it.

Matrix products and convolutions of few rows go by other kernels than those of many, which add up in
another order: a difference of 1e-7 of the gradient on a CPU. A search by L-BFGS magnifies it within
tens of evaluations to all of the image. So a batch of few rows is filled up for each dense layer
and convolution, and what they give of the filling is cut off again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn

LEAST_ROWS: dict[type[nn.Module], int] = {nn.Linear: 8, nn.Conv2d: 2}
"""Rows from which on a layer's kernels stay the same, measured with MKL and oneDNN."""


@contextmanager
def padded_rows(network: nn.Module, rows: int) -> Iterator[None]:
    """Let layers compute at least `LEAST_ROWS` rows in the block.

    Args:
        network: that is given rows of samples.
        rows: how many samples; nothing is done where they are enough.
    """
    padded = [layer for layer in network.modules() if rows < LEAST_ROWS.get(type(layer), 0)]
    for layer in padded:
        vars(layer)["forward"] = partial(_with_padding, layer.forward, LEAST_ROWS[type(layer)])
    try:
        yield
    finally:
        for layer in padded:
            del vars(layer)["forward"]


def _with_padding(forward: Callable[[Tensor], Tensor], least: int, input: Tensor) -> Tensor:
    """What a layer gives of its input, computed with at least so many rows."""
    rows = len(input)
    missing = input.new_zeros(max(0, least - rows), *input.shape[1:])
    return forward(torch.cat([input, missing]))[:rows]
