"""Labels read off the gradient of the last dense layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from gleak.errors import FitError

if TYPE_CHECKING:
    from gleak.attacks.base import Observation


def classifier_parameter(model: nn.Module, classes: int) -> str:
    """Name of the parameter that labels are read off: the classifier's bias, or else its weight.

    Raises:
        FitError: the model has no dense layer with one output per class.
    """
    heads = {
        name: layer
        for name, layer in model.named_modules()
        if isinstance(layer, nn.Linear) and layer.out_features == classes
    }
    if not heads:
        raise FitError(
            f"labels cannot be inferred: no dense layer with {classes} outputs; "
            "only attacks that are granted the labels serve this model"
        )
    name, layer = heads.popitem()
    return f"{name}.weight" if layer.bias is None else f"{name}.bias"


def lowest_of_rows(model: nn.Module, update: dict[str, Tensor], classes: int) -> Tensor:
    """The least entry in each row of the classifier's weight gradient (GradInversion, Eq. 4).

    Behind an activation that is never negative, only rows of labels in the batch hold entries well
    below zero. Other samples add to a row's sum, but less to its least entry.

    Returns:
        Shape (V, classes).

    Raises:
        FitError: the model has no dense layer with one output per class.
    """
    layer, _, _ = classifier_parameter(model, classes).rpartition(".")
    return update[f"{layer}.weight"].amin(-1)


def classifier_gradient(model: nn.Module, update: dict[str, Tensor], classes: int) -> Tensor:
    """One number per class from the classifier: its bias gradient, or the row sums of its weight's.

    With cross-entropy the bias gradient of class i is the mean over samples of p_i - [label = i]. A
    row of the weight gradient is that number times the layer's inputs, which a sigmoid or a ReLU
    keeps positive, so the sum has its sign.

    Returns:
        Shape (V, classes).

    Raises:
        FitError: the model has no dense layer with one output per class.
    """
    name = classifier_parameter(model, classes)
    return update[name].sum(-1) if name.endswith(".weight") else update[name]


def infer_by_sign(scores: Tensor, samples: int) -> Tensor:
    """The rows whose sign differs from the others': the most negative ones (iDLG, Eq. 3 and 4).

    No label can be given twice. Shape (V, samples).

    Raises:
        FitError: more samples than classes.
    """
    if samples > scores.shape[1]:
        raise FitError(
            f"labels=sign and labels=rows give no label twice, so {scores.shape[1]} classes do not "
            f"serve a batch of {samples}; use an attack that takes labels=argmin or labels=known"
        )
    return scores.argsort(1)[:, :samples]


def infer_by_argmin(scores: Tensor, samples: int) -> Tensor:
    """The smallest entry, sample by sample (CPL Algorithm 1, line 9).

    The paper's rule is for one sample. For a batch it is repeated: each sample's share of the
    negative entries is taken back from the label found before the next is sought, so labels may
    repeat. Of a bias gradient that share is near 1/N. Shape (V, samples).
    """
    share = scores.clamp(max=0).sum(1, keepdim=True) / samples
    left, found = scores.clone(), []
    for _ in range(samples):
        label = left.argmin(1, keepdim=True)
        left.scatter_add_(1, label, -share)
        found.append(label)
    return torch.cat(found, 1)


Scores = Callable[[nn.Module, dict[str, Tensor], int], Tensor]
"""From a model, the gradients of its parameters and the number of classes; Shape (V, classes)."""
RULES: dict[str, tuple[Scores, Callable[[Tensor, int], Tensor]]] = {
    "sign": (classifier_gradient, infer_by_sign),
    "rows": (lowest_of_rows, infer_by_sign),
    "argmin": (classifier_gradient, infer_by_argmin),
}


def inferred_labels(rule: str, observation: Observation, gradients: dict[str, Tensor]) -> Tensor:
    """Labels of every victim's samples, in ascending order; Shape (V, N).

    Args:
        rule: one of `RULES`.
        observation: of the victims.
        gradients: of the parameters, Shape (V, *shape).

    Raises:
        FitError: the model has no classifier, or the rule cannot give so many labels.
    """
    score, infer = RULES[rule]
    scores = score(observation.model, gradients, observation.classes)
    return infer(scores, observation.batch_size).sort(1).values
