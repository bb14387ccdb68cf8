"""Choice of kernels by device.

On a CPU arithmetic takes the time, and sums must not depend on the number of victims that are
computed together. On a GPU the start of each kernel takes time, so few kernels of many values are
best, and a victim's result may differ in the last bits with the number of victims.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from gleak.core.lazy import torch

LEAST_ROWS = {"Linear": 16, "Conv2d": 2}
"""Number of rows from which the same kernels are used, measured with MKL and oneDNN."""
VECTOR_VALUES = 32
"""Values that elementwise functions compute at once with AVX-512; those left over at the end of a
tensor are computed one by one, with another rounding."""
ELEMENTWISE = "CELU ELU GELU LogSigmoid Mish SELU Sigmoid SiLU Softplus Tanh"


def on_cpu(values: torch.Tensor) -> bool:
    """Return True if kernels should be those for a CPU."""
    return values.device.type == "cpu"


def layout(images: torch.Tensor) -> torch.memory_format:
    """Return the memory format in which convolutions of images are faster."""
    last = images.ndim == 4 and on_cpu(images)
    return torch.channels_last if last else torch.contiguous_format


@contextmanager
def padded_rows(network: torch.nn.Module, rows: torch.Tensor) -> Iterator[None]:
    """Pad the inputs of layers with zeros in the block, so that kernels do not depend on `rows`.

    Matrix products and convolutions of few samples use other kernels than those of many, which sum
    in another order, and the last values of a tensor are computed without vector instructions: a
    difference of 1e-7 of the gradient on a CPU, which a search by L-BFGS amplifies within tens of
    evaluations to the whole image. With padding, the outputs of a sample do not depend on how many
    others are computed with it. On a GPU the block changes nothing.
    """
    elementwise = tuple(getattr(torch.nn, name) for name in ELEMENTWISE.split())
    padded = []
    for layer in network.modules() if on_cpu(rows) else ():
        least = LEAST_ROWS.get(type(layer).__name__, 0)
        if len(rows) < least or isinstance(layer, elementwise):
            vars(layer)["forward"] = partial(_with_padding, layer.forward, least)
            padded.append(layer)
    try:
        yield
    finally:
        for layer in padded:
            del vars(layer)["forward"]


def _with_padding(
    forward: Callable[[torch.Tensor], torch.Tensor], least: int, input: torch.Tensor
) -> torch.Tensor:
    """Apply a layer to an input with rows of zeros after its own.

    As many as the least number of rows lacks, or, for a function that is computed value by value,
    as keep the input's values from those computed one by one.
    """
    missing = max(0, least - len(input))
    values = input[:1].numel()
    if not least and values % VECTOR_VALUES:
        missing = -(-VECTOR_VALUES // values)
    if not missing:
        return forward(input)
    return forward(torch.cat([input, input.new_zeros(missing, *input.shape[1:])]))[: len(input)]
