"""Losses and gradients of single samples, kinks, and kernels that can be differentiated twice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from gleak.core.lazy import torch
from gleak.models.parameters import Tensors, double_copy, dtype_of

if TYPE_CHECKING:
    from gleak.models.layers import Penalised

SATURATED = 0.01
"""Share of values up to which a saturated smooth function may have derivatives of zero."""


def sample_losses(loss: str, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Compute the loss of each sample; Shape (M).

    Args:
        loss: "cross_entropy", or "nll_raw": minus the raw logit of the label (MKOR's reference).
        logits: Shape (M, classes).
        targets: Shape (M, classes), rows that sum to one; not one-hot if labels are optimised too.
    """
    scores = torch.nn.functional.log_softmax(logits, dim=1) if loss == "cross_entropy" else logits
    return -(targets * scores).sum(1)


def smoothed(targets: torch.Tensor, share: float | None) -> torch.Tensor:
    """Spread a share of label probabilities, (..., classes), over all classes; None: none."""
    return targets if share is None else (1 - share) * targets + share / targets.shape[-1]


def penalised_layers(network: torch.nn.Module) -> list[Penalised]:
    from gleak.models.layers import Penalised

    return [layer for layer in network.modules() if isinstance(layer, Penalised)]


@contextmanager
def penalties(network: torch.nn.Module) -> Iterator[list[torch.Tensor]]:
    """Collect the penalties of all forward passes in the block, Shape (N) each; mostly none.

    Code that computes a loss adds them. A penalty is part of the loss and not of a layer's
    derivative, as a layer does not know the weight of a sample in a mean, nor whether the
    differentiated value is a loss.
    """
    collected: list[torch.Tensor] = []

    def keep(layer: Penalised, given: tuple[Any, ...], _: torch.Tensor) -> None:
        collected.append(layer.penalty(given[0]))

    with ExitStack() as stack:
        for layer in penalised_layers(network):
            stack.enter_context(layer.register_forward_hook(keep))
        yield collected


@contextmanager
def differentiable_kernels(network: torch.nn.Module) -> Iterator[None]:
    """Use kernels that have second derivatives, in the block.

    These are the mathematical kernel of attention, not the fast paths of `nn.MultiheadAttention`
    and `nn.TransformerEncoderLayer`, and recurrent layers without cuDNN.
    """
    recurrent = any(isinstance(layer, torch.nn.RNNBase) for layer in network.modules())
    fast_path, cudnn = torch.backends.mha.get_fastpath_enabled(), torch.backends.cudnn.enabled
    torch.backends.mha.set_fastpath_enabled(False)
    torch.backends.cudnn.enabled = cudnn and not recurrent
    try:
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast_path)
        torch.backends.cudnn.enabled = cudnn


def has_kinks(network: torch.nn.Module, inputs: torch.Tensor) -> bool:
    """Return True if a network computes a ReLU, a maximum or another function with kinks.

    The derivatives of the logits at the inputs of such a function have exact zeros, at places that
    depend on the samples: two halves of random inputs, Shape (N, *shape), are compared. Where no
    logit depends on a value, its derivative is zero for all samples, which does not count. All
    operations of the forward pass are compared, also those outside of modules.
    """
    copied = double_copy(network, inputs)
    first, second = (_zero_slopes(copied, half.to(dtype_of(copied))) for half in inputs.chunk(2))
    pairs = [pair for pair in zip(first, second, strict=False) if pair[0].shape == pair[1].shape]
    return any(bool((one != other).double().mean() > SATURATED) for one, other in pairs)


def _zero_slopes(network: torch.nn.Module, inputs: torch.Tensor) -> list[torch.Tensor]:
    """Mark the zeros of the derivatives that every operation passes back, from the last one on."""
    with torch.enable_grad():
        zeros: list[torch.Tensor] = []

        def note(slopes: tuple[torch.Tensor | None, ...], _: object) -> None:
            zeros.extend(slope == 0 for slope in slopes if slope is not None)

        samples = inputs.clone().requires_grad_()
        logits = network(samples * 1)
        seen: set[torch.autograd.graph.Node | None] = {None}
        waiting = [logits.grad_fn]
        while waiting:
            node = waiting.pop()
            if node not in seen:
                seen.add(node)
                node.register_hook(note)
                waiting += [earlier for earlier, _ in node.next_functions]
        if logits.requires_grad:
            weighted = logits * torch.linspace(1, 2, logits.shape[1]).to(logits)
            torch.autograd.grad(weighted.sum(), samples, allow_unused=True)
        return zeros


def sample_gradients(
    model: torch.nn.Module,
    parameters: Tensors,
    inputs: torch.Tensor,
    labels: torch.Tensor,
    loss: str,
    at_once: int | None = None,
) -> tuple[torch.Tensor, Tensors]:
    """Compute the loss and the gradient of each sample separately.

    Samples, which must not interact, are processed one by one if torch cannot vectorise a layer,
    such as recurrent ones. Layers that draw random numbers draw for each sample.

    Args:
        model: its own parameters are not changed.
        parameters: at which the gradients are taken.
        inputs: Shape (B, *shape).
        labels: Shape (B).
        loss: see `sample_losses`.
        at_once: number of samples that are vectorised together; None: all.

    Returns:
        Losses, Shape (B), and gradients, Shape (B, *shape).
    """
    of_one = torch.func.grad_and_value(partial(_sample_loss, model, loss))
    of_all = torch.func.vmap(
        of_one, in_dims=(None, 0, 0), randomness="different", chunk_size=at_once
    )
    with differentiable_kernels(model):
        try:
            gradients, losses = of_all(parameters, inputs, labels)
        except RuntimeError:
            single = [of_one(parameters, *sample) for sample in zip(inputs, labels, strict=True)]
            gradients = {key: torch.stack([one[key] for one, _ in single]) for key in parameters}
            losses = torch.stack([value for _, value in single])
    return losses, gradients


def _sample_loss(
    model: torch.nn.Module,
    loss: str,
    parameters: Tensors,
    sample: torch.Tensor,
    label: torch.Tensor,
) -> torch.Tensor:
    with penalties(model) as added:
        logits = torch.func.functional_call(model, parameters, (sample[None].clone(),))
    classes = torch.arange(logits.shape[1], device=logits.device)
    targets = (classes == label).to(logits.dtype)[None]
    return sum(added, sample_losses(loss, logits, targets))[0]
