"""Test whether a layer takes samples themselves, or features of them."""

from __future__ import annotations

import math

import numpy as np

from gleak.core.lazy import torch
from gleak.runtime.seeding import torch_stream

VALUES_TRIED = 16
DOMINANT = 0.5


def takes_samples(network: torch.nn.Module, name: str, shape: tuple[int, ...]) -> bool:
    """Return True if the inputs of a layer are the values of a sample, in any order.

    An input is the value of a sample, perhaps scaled, if one value makes up more than half of the
    square sum of its derivatives by the sample. More than half of 16 inputs have to be, at a sample
    of uniform values.

    Args:
        network: in evaluation mode.
        name: name of the layer, whose inputs are as many as a sample has values.
        shape: shape of one sample.

    Returns:
        True, too, for a layer that is no module of the network or is called without a tensor of
        as many values, so that nothing is hidden by how a network is written.
    """
    taken: list[torch.Tensor] = []
    layer = dict(network.named_modules()).get(name)
    if layer is None:
        return True
    hook = layer.register_forward_pre_hook(lambda _, inputs: taken.extend(inputs[:1]))
    drawn = torch.rand(1, *shape, generator=torch_stream(0, "sample tried"))
    sample = drawn.to(next(network.parameters())).requires_grad_()
    network(sample)
    hook.remove()
    values = math.prod(shape)
    if not taken or not isinstance(taken[0], torch.Tensor) or taken[0].numel() != values:
        return True
    inputs = taken[0].flatten()
    if not inputs.requires_grad:
        return False
    shares = []
    for at in np.linspace(0, values - 1, min(values, VALUES_TRIED)).round().astype(int):
        (gradient,) = torch.autograd.grad(
            inputs[at], sample, retain_graph=True, materialize_grads=True
        )
        squares = gradient.square()
        shares.append(float(squares.max() / squares.sum()) if squares.any() else 0.0)
    return float(np.median(shares)) > DOMINANT
