"""Gradient matching as a plain PyTorch loop, one victim after the other: the unit of all ratios.

Written with `torch.autograd` and `torch.optim` only. Seconds are CPU seconds of this process by
default.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

OPTIMIZERS: Mapping[str, Callable[[list[Tensor]], torch.optim.Optimizer]] = {
    "lbfgs": lambda unknown: torch.optim.LBFGS(unknown, max_iter=1, history_size=100),
    "adam": lambda unknown: torch.optim.Adam(unknown, lr=0.1),
}


def squared(ours: Sequence[Tensor], sent: Sequence[Tensor]) -> Tensor:
    return torch.stack([(a - b).square().sum() for a, b in zip(ours, sent, strict=True)]).sum()


def angular(ours: Sequence[Tensor], sent: Sequence[Tensor]) -> Tensor:
    product = torch.stack([(a * b).sum() for a, b in zip(ours, sent, strict=True)]).sum()
    lengths = [torch.stack([v.square().sum() for v in side]).sum() for side in (ours, sent)]
    return 1 - product / (lengths[0] * lengths[1]).sqrt()


DISTANCES = {"l2": squared, "cosine": angular}


def seconds_of_matching(
    network: nn.Module,
    sent: Sequence[Tensor],
    shape: tuple[int, ...],
    *,
    optimizer: str,
    distance: str,
    iterations: int,
    variation: float | None = None,
    clock: Callable[[], float] = time.process_time,
) -> float:
    """Return the seconds of one evaluation for one victim with one sample.

    Args:
        network: broadcast network.
        sent: gradient of each parameter; the last is that of the biases of the logits.
        shape: of the sample.
        optimizer, distance: keys of `OPTIMIZERS` and `DISTANCES`.
        iterations: number of steps.
        variation: weight of an image's total variation; if given, steps follow the gradient's sign,
            and end in [0, 1].
        clock: of the seconds; on a GPU one that waits for it.
    """
    parameters = [parameter.requires_grad_() for parameter in network.parameters()]
    label = sent[-1].argmin()[None]
    drawn = torch.rand(1, *shape, generator=torch.Generator().manual_seed(0))
    dummy = drawn.to(label.device).requires_grad_()
    chosen = OPTIMIZERS[optimizer]([dummy])
    evaluations = 0

    def evaluate() -> Tensor:
        nonlocal evaluations
        evaluations += 1
        loss = cross_entropy(network(dummy), label)
        apart = DISTANCES[distance](torch.autograd.grad(loss, parameters, create_graph=True), sent)
        if variation is not None:
            apart = apart + variation * (dummy.diff(dim=2).abs().mean() + dummy.diff().abs().mean())
        (slope,) = torch.autograd.grad(apart, [dummy])
        dummy.grad = slope if variation is None else slope.sign()
        return apart

    began = clock()
    for _ in range(iterations):
        chosen.step(evaluate)
        if variation is not None:
            with torch.no_grad():
                dummy.clamp_(0, 1)
    spent = clock() - began
    network.requires_grad_(False)
    return spent / evaluations


def seconds_of_gradient(network: nn.Module, inputs: Tensor, labels: Tensor) -> float:
    """Return the seconds of one gradient of a batch."""
    parameters = [parameter.requires_grad_() for parameter in network.parameters()]
    began = time.process_time()
    torch.autograd.grad(cross_entropy(network(inputs), labels), parameters)
    spent = time.process_time() - began
    network.requires_grad_(False)
    return spent
