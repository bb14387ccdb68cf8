"""MKOR's dense layers: paths that keep the gradients of classes apart (Eq. 10 to 13)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Generator, Tensor, nn

from gleak.core.errors import IncompatibleError
from gleak.models.chain import DenseStep

if TYPE_CHECKING:
    from gleak.crafting.mkor import MKOR

FEWEST_LAYERS = 2
CUTTING = (nn.ReLU, nn.LeakyReLU)
"""Activations that let (almost) nothing through on one side, so that neurons come in pairs."""


@dataclass(frozen=True)
class ClassPaths:
    """Where a server reads each class.

    Args:
        rows: neurons of the first dense layer, Shape (classes, M).
        pairs: whether only one of two neighbours in ``rows`` lets a sample's gradient through.
    """

    rows: Tensor
    pairs: bool


def needs_pairs(activation: nn.Module, crafting: MKOR) -> bool:
    """Whether each path begins with two neurons of which one is active whatever the sample."""
    return crafting.hiding != "naive" and isinstance(activation, CUTTING)


@torch.no_grad()
def craft_classes(
    steps: Sequence[DenseStep], features: Tensor, crafting: MKOR, random: Generator
) -> ClassPaths:
    """Lay a path, or several, from the first dense layer to each class, in place.

    Args:
        steps: the dense layers; their weights are those of a usual network.
        features: Shape (M, E), what the first is given of made-up images.
        crafting: its fields.
        random: chooses neurons and draws noise.

    Raises:
        IncompatibleError: fewer than two dense layers, or too few neurons in one of them.
    """
    check_paths(steps, crafting)
    first, *others = steps
    classes, paths = steps[-1].layer.out_features, crafting.paths_beside(first.dropout)
    pairs = needs_pairs(first.activation, crafting)
    if crafting.hiding == "naive":
        for step in steps:
            step.layer.weight.zero_()
            step.layer.bias.zero_()
    rows = _begin(first.layer, classes * paths, pairs, crafting, random)
    carriers, values = rows, first.activation(first.layer(features))
    for step in others[:-1]:
        carriers = _go_on(step, carriers, values, None, crafting, random)[:, None]
        values = step.activation(step.layer(values))
    outputs = torch.arange(classes).repeat_interleave(paths)
    _go_on(others[-1], carriers, values, outputs, crafting, random)
    return ClassPaths(rows.reshape(classes, -1), pairs)


@torch.enable_grad()
def path_gains(steps: Sequence[DenseStep], features: Tensor, rows: Tensor) -> Tensor:
    """What each class's logit changes by when the sum in one of its neurons does.

    Args:
        steps: the dense layers, as they are broadcast.
        features: Shape (M, E), what the first is given of made-up images; the mean over them.
        rows: Shape (classes, K), neurons of the first.

    Returns:
        Shape (classes, K); of a neuron behind a ReLU, when it is active.
    """
    first, *others = steps
    sums = first.layer(features).detach().requires_grad_()
    values = first.activation(sums)
    entered = logits = values.detach().requires_grad_()
    for step in others:
        logits = step.activation(step.layer(logits))
    (slopes,) = torch.autograd.grad(values.sum(), sums)
    opened = torch.ones_like(slopes) if isinstance(first.activation, CUTTING) else slopes
    gains = []
    for output, neurons in zip(logits.sum(0), rows, strict=True):
        (gradient,) = torch.autograd.grad(output, entered, retain_graph=True)
        gains.append((gradient * opened)[:, neurons].mean(0))
    return torch.stack(gains)


def check_paths(steps: Sequence[DenseStep], crafting: MKOR) -> None:
    """Refuse dense layers that the paths of all classes cannot be laid through.

    Raises:
        IncompatibleError: fewer than two dense layers, or too few neurons in one of them.
    """
    first = steps[0]
    paths = steps[-1].layer.out_features * crafting.paths_beside(first.dropout)
    pairs = needs_pairs(first.activation, crafting)
    if len(steps) < FEWEST_LAYERS:
        raise IncompatibleError(
            f"paths of classes need two dense layers or more, and this network has {len(steps)}"
        )
    for step in steps[:-1]:
        needed = paths * (2 if pairs and step is steps[0] else 1)
        if step.layer.out_features < needed:
            raise IncompatibleError(
                f"dense layer {step.name!r} has {step.layer.out_features} neurons, and paths of "
                f"all classes need {needed}"
            )


def _begin(layer: nn.Linear, paths: int, pairs: bool, crafting: MKOR, random: Generator) -> Tensor:
    """Neurons of the first layer, one or a pair for each path; Shape (paths, 1 or 2)."""
    if crafting.hiding == "naive":
        rows = torch.arange(paths)[:, None]
        layer.weight[rows] = 1 / layer.in_features
        return rows
    width = 2 if pairs else 1
    rows = torch.randperm(layer.out_features, generator=random)[: width * paths].view(-1, width)
    if pairs:
        kept, mirrored = rows.unbind(1)
        layer.weight[mirrored] = crafting.alpha * layer.weight[kept]
        layer.bias[mirrored] = crafting.alpha * layer.bias[kept]
    return rows


def _go_on(
    step: DenseStep,
    carriers: Tensor,
    values: Tensor,
    outputs: Tensor | None,
    crafting: MKOR,
    random: Generator,
) -> Tensor:
    """Lead each path through one more layer.

    Args:
        step: the layer.
        carriers: neurons before it, Shape (paths, 1 or 2).
        values: Shape (M, inputs), what it is given of made-up images.
        outputs: the neurons paths lead to, Shape (paths); None: to be chosen.
        crafting: its fields.
        random: chooses neurons and draws noise.

    Returns:
        The neurons, Shape (paths).
    """
    layer, paths = step.layer, len(carriers)
    if crafting.hiding == "naive":
        chosen = torch.arange(paths) if outputs is None else outputs
        layer.weight[chosen[:, None], carriers] = 1.0
        return chosen
    largest = layer.weight.abs().amax(1)
    noise = crafting.noise * layer.weight.std()
    taken = carriers.flatten()
    layer.weight[:, taken] = noise * layer.weight[:, taken].normal_(generator=random)
    if outputs is None:
        chosen = _choose(step, values, paths, random)
        layer.bias[chosen] = layer.bias[chosen].abs()
    else:
        chosen = outputs
        layer.bias.abs_()
    layer.weight[chosen[:, None], carriers] = largest[chosen][:, None].expand(carriers.shape)
    return chosen


def _choose(step: DenseStep, values: Tensor, paths: int, random: Generator) -> Tensor:
    """Neurons that are active whatever the image, as far as made-up ones tell; Shape (paths)."""
    if not isinstance(step.activation, CUTTING):
        return torch.randperm(step.layer.out_features, generator=random)[:paths]
    sums = values @ step.layer.weight.T + step.layer.bias.abs()
    return sums.amin(0).argsort(descending=True)[:paths]
