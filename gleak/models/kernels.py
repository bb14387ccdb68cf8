"""Kernels of torch that can be differentiated twice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel


@contextmanager
def differentiable_kernels(network: nn.Module) -> Iterator[None]:
    """Run layers by kernels that have second derivatives, in the block.

    Attention goes by its mathematical kernel, the fast paths of `nn.MultiheadAttention` and
    `nn.TransformerEncoderLayer` are off, and recurrent layers do without cuDNN, whose derivative
    cannot be differentiated.

    Args:
        network: that is to run in the block.
    """
    recurrent = any(isinstance(layer, nn.RNNBase) for layer in network.modules())
    fast_path = torch.backends.mha.get_fastpath_enabled()
    cudnn = torch.backends.cudnn.enabled
    torch.backends.mha.set_fastpath_enabled(False)
    torch.backends.cudnn.enabled = cudnn and not recurrent
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast_path)
        torch.backends.cudnn.enabled = cudnn
