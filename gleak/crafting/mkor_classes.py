"""MKOR's dense layers: paths that keep the gradients of classes apart (Eq. 10 to 13)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Generator, Tensor, nn

from gleak.errors import FitError
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
        gains: what the class's logit changes by when the neuron's sum does, Shape (classes, M).
        pairs: whether only one of two neighbours in ``rows`` lets a sample's gradient through.
    """

    rows: Tensor
    gains: Tensor
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
        FitError: fewer than two dense layers, or too few neurons in one of them.
    """
    first, *others = steps
    classes, paths = steps[-1].layer.out_features, crafting.paths_beside(first.dropout)
    pairs = needs_pairs(first.activation, crafting)
    _check(steps, classes * paths, pairs)
    if crafting.hiding == "naive":
        for step in steps:
            step.layer.weight.zero_()
            step.layer.bias.zero_()
    rows = _begin(first.layer, classes * paths, pairs, crafting, random)
    carriers, gains = rows, torch.ones(rows.shape)
    values = first.activation(first.layer(features))
    gains = gains * _slopes(first, features)[rows]
    for step in others:
        last = step is steps[-1]
        outputs = torch.arange(classes).repeat_interleave(paths) if last else None
        chosen, weights = _go_on(step, carriers, values, outputs, crafting, random)
        gains = gains * weights
        if not last:
            gains = gains * _slopes(step, values)[chosen][:, None]
            values = step.activation(step.layer(values))
        carriers = chosen[:, None]
    return ClassPaths(rows.reshape(classes, -1), gains.reshape(classes, -1), pairs)


def _check(steps: Sequence[DenseStep], paths: int, pairs: bool) -> None:
    if len(steps) < FEWEST_LAYERS:
        raise FitError(
            f"paths of classes need two dense layers or more, and this network has {len(steps)}"
        )
    for step in steps[:-1]:
        needed = paths * (2 if pairs and step is steps[0] else 1)
        if step.layer.out_features < needed:
            raise FitError(
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
) -> tuple[Tensor, Tensor]:
    """Lead each path through one more layer.

    Args:
        step: the layer.
        carriers: neurons before it, Shape (paths, 1 or 2).
        values: Shape (M, inputs), what it is given of made-up images.
        outputs: the neurons paths lead to, Shape (paths); None: to be chosen.
        crafting: its fields.
        random: chooses neurons and draws noise.

    Returns:
        The neurons, Shape (paths), and the weights that lead there, Shape (paths, 1 or 2).
    """
    layer, paths = step.layer, len(carriers)
    if crafting.hiding == "naive":
        chosen = torch.arange(paths) if outputs is None else outputs
        layer.weight[chosen[:, None], carriers] = 1.0
        return chosen, torch.ones(carriers.shape)
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
    weights = largest[chosen][:, None].expand(carriers.shape)
    layer.weight[chosen[:, None], carriers] = weights
    return chosen, weights


def _choose(step: DenseStep, values: Tensor, paths: int, random: Generator) -> Tensor:
    """Neurons that are active whatever the image, as far as made-up ones tell; Shape (paths)."""
    if not isinstance(step.activation, CUTTING):
        return torch.randperm(step.layer.out_features, generator=random)[:paths]
    sums = values @ step.layer.weight.T + step.layer.bias.abs()
    return sums.amin(0).argsort(descending=True)[:paths]


def _slopes(step: DenseStep, values: Tensor) -> Tensor:
    """Slope of the activation in each neuron on a middling image; 1 on the open side of a ReLU."""
    if isinstance(step.activation, CUTTING):
        return torch.ones(step.layer.out_features)
    with torch.enable_grad():
        sums = step.layer(values).detach().requires_grad_()
        (slopes,) = torch.autograd.grad(step.activation(sums).sum(), sums)
    return slopes.mean(0)
