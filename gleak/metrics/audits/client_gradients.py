"""Gradients of a client's samples at broadcast parameters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from gleak.artifacts.dataset import Dataset
from gleak.core.lazy import torch
from gleak.metrics.audits.weight_matrices import Reach
from gleak.models.batching import memory_slices
from gleak.models.parameters import as_inputs
from gleak.runtime.seeding import stream, torch_stream


def measure_reach(
    network: torch.nn.Module, data: Dataset, samples: int, seed: int
) -> dict[str, Reach]:
    """Measure the gradients and influences of samples in the rows and columns of every layer.

    An input that is always zero, or a neuron that is never active, has no gradient for any loss.
    One backward pass of a random combination of the logits reveals this, since nonzero gradients do
    not cancel in it. Frozen layers pass samples on and are measured like any other.

    Args:
        network: with the received parameters, in evaluation mode; its parameters are not changed.
        data: a client's data, of the shape and with the classes of the model.
        samples: number of samples drawn from its train split, at most.
        seed: seed of the draw.

    Returns:
        By parameter that has rows and columns and can have a gradient.
    """
    matrices = {
        name: parameter.requires_grad_()
        for name, parameter in network.named_parameters()
        if parameter.is_floating_point() and parameter.ndim > 1 and parameter.numel()
    }
    labels, random = data.labels("train"), torch_stream(seed, "directions of logits")
    chosen = stream(seed, "samples tried").permutation(len(labels))[:samples]
    reaches: dict[str, Reach] = {}
    for batch in memory_slices(len(chosen), data.shape):
        logits = network(as_inputs(network, data.samples("train", chosen[batch])))
        along = _along(logits, torch.randn(logits.shape, generator=random).to(logits))
        gradients = torch.autograd.grad(along, list(matrices.values()), materialize_grads=True)
        for (name, parameter), gradient in zip(matrices.items(), gradients, strict=True):
            weights, slopes = (
                values.detach().reshape(len(values), -1).float().numpy()
                for values in (parameter, gradient)
            )
            reach = Reach.from_gradients(weights, slopes)
            reaches[name] = reaches[name] | reach if name in reaches else reach
    maximum = max((reach.largest for reach in reaches.values()), default=0.0)
    return {name: replace(reach, network_maximum=maximum) for name, reach in reaches.items()}


def _along(logits: torch.Tensor, direction: torch.Tensor) -> torch.Tensor:
    """Compute the product of logits and a direction, whose gradient is that of the logits along it.

    torch (2.13) imports sympy, 0.4 s, when it differentiates along a direction that it is given.
    """
    return (logits * direction).sum()


def draw_batch(data: Dataset, samples: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw samples and their labels from the train split; Shape (N, *shape) and (N)."""
    labels = data.labels("train")
    chosen = stream(seed, "audited batch").permutation(len(labels))[:samples]
    return data.samples("train", chosen), labels[chosen]


def output_gradients(
    network: torch.nn.Module,
    data: Dataset,
    samples: int,
    seed: int,
    directions: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> dict[str, np.ndarray]:
    """Compute the gradient of each sample's logits by the outputs of dense layers.

    Args:
        network: as for `measure_reach`.
        data: as for `measure_reach`.
        samples: as for `measure_reach`.
        seed: as for `measure_reach`.
        directions: `unit_directions` or `one_direction`, along which the logits are derived.

    Returns:
        By name of the layer, of those that return one vector of each sample; Shape (K, N).
    """
    outputs: dict[str, torch.Tensor] = {}
    hooks = []
    for name, layer in network.named_modules():
        if isinstance(layer, torch.nn.Linear):

            def keep(_: object, __: object, output: torch.Tensor, name: str = name) -> None:
                outputs[name] = output.requires_grad_()

            hooks.append(layer.register_forward_hook(keep))
    drawn, labels = draw_batch(data, samples, seed)
    logits = network(as_inputs(network, drawn))
    for hook in hooks:
        hook.remove()
    along = _along(logits, directions(logits, torch.from_numpy(labels)).to(logits.dtype))
    vectors = {
        name: values
        for name, values in outputs.items()
        if values.ndim == 2 and len(values) == len(labels)
    }
    if not vectors:
        return {}
    gradients = torch.autograd.grad(along, list(vectors.values()), materialize_grads=True)
    return {
        name: gradient.T.double().numpy() for name, gradient in zip(vectors, gradients, strict=True)
    }


def unit_directions(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Compute the gradients of cross-entropy by the logits, of unit norm; Shape (N, K).

    How well a sample is classified does not matter then. They are 0 where the softmax is exactly
    one-hot at the label.
    """
    directions = torch.nn.functional.softmax(logits.detach().double(), dim=1)
    columns = labels.long()[:, None]
    directions.scatter_(1, columns, 0.0)
    directions.scatter_(1, columns, -directions.sum(dim=1, keepdim=True))
    norms = directions.norm(dim=1, keepdim=True)
    return directions / torch.where(norms > 0, norms, 1.0)


def one_direction(logits: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    """Return a random direction of the logits that all samples share; Shape (1, K)."""
    return torch.randn(1, logits.shape[1], generator=torch_stream(0, "direction of the logits"))


def gradient_norms(
    network: torch.nn.Module, data: Dataset, samples: int, seed: int
) -> dict[str, np.ndarray]:
    """Compute gradient norms of each sample, for its cross-entropy and for a change of the logits.

    Arguments are those of `measure_reach`. The change of the logits is a random direction that all
    samples share, of sum zero, since adding a constant to all logits changes no loss.

    Returns:
        By parameter that requires a gradient; Shape (2, N): first of cross-entropy, per unit of its
        gradient at the logits, then of the direction, which does not depend on the label. Samples
        whose loss has no gradient are left out.
    """
    labels, random = data.labels("train"), stream(seed, "audited samples")
    chosen = random.choice(len(labels), min(samples, len(labels)), replace=False)
    inputs = as_inputs(network, data.samples("train", chosen))
    trained = {name: each for name, each in network.named_parameters() if each.requires_grad}
    if not trained:
        return {}
    change = torch.randn(1, data.classes, generator=torch_stream(seed, "change of the logits"))
    change = change - change.mean()
    norms: list[list[list[float]]] = []
    for sample, label in zip(inputs.split(1), labels[chosen].tolist(), strict=True):
        logits = network(sample)
        direction = unit_directions(logits, torch.tensor([label]))
        if not direction.any():
            continue
        norms.append([])
        for vector in (direction, change):
            along = _along(logits, vector.to(logits.dtype))
            gradients = torch.autograd.grad(
                along, list(trained.values()), retain_graph=True, materialize_grads=True
            )
            norms[-1].append([float(gradient.norm()) for gradient in gradients])
    kept = np.array(norms).reshape(-1, 2, len(trained))
    return dict(zip(trained, kept.transpose(2, 1, 0), strict=True))
