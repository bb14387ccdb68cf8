"""Recovery of a dense layer's inputs from the gradients of its weight and bias."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from gleak.core.errors import IncompatibleError
from gleak.matching.label_inference import parameters_of_labels
from gleak.models.layer_search import Scaling, find_classifier, first_dense_layer
from gleak.models.sample_losses import sample_losses

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gleak.observation import Observation


def dense_layer_of_samples(network: nn.Module, shape: tuple[int, ...]) -> str:
    """Return the name of the dense layer with a bias whose inputs are the samples.

    They are flattened, and may be normalised.

    Args:
        network: in the mode in which it is attacked.
        shape: shape of a sample.

    Raises:
        IncompatibleError: the model has no such layer.
    """
    return scaled_layer(network, shape)[0]


def scaled_layer(network: nn.Module, shape: tuple[int, ...]) -> tuple[str, Scaling]:
    """Return the name of the layer of `dense_layer_of_samples`, and the scaling of the samples.

    Raises:
        IncompatibleError: the model has no such layer.
    """
    layer = first_dense_layer(network, shape)
    if layer is None or layer.scaling is None:
        raise IncompatibleError(
            "the attack needs a dense layer with a bias whose inputs are the samples themselves, "
            "and this model has none; use mlp or fc2"
        )
    return layer.name, layer.scaling


def read_inputs(weight: Tensor, bias: Tensor, samples: int) -> Tensor:
    """Estimate the inputs by the ratios of weight and bias gradients.

    For N samples the bias gradient of neuron k is the sum over samples of d_ik, and its weight
    gradient the sum of d_ik x_i: their ratio is a mean of the inputs x_i, with weights that may be
    negative. For one sample it is the input itself at every neuron, so the input is computed by
    least squares over all of them, W^T b / b^T b. For several samples the neurons with the largest
    absolute bias gradients give one candidate each; a layer of fewer neurons repeats them.

    Args:
        weight: W, the weight's gradient; Shape (V, neurons, F).
        bias: b, the bias's gradient; Shape (V, neurons).
        samples: N.

    Returns:
        Shape (V, N, F); not finite where the bias gradient is zero.
    """
    if samples == 1:
        largest = bias.abs().amax(1, keepdim=True)
        shares = bias / largest
        estimate = (shares[:, None] @ weight)[:, 0] / shares.square().sum(1, keepdim=True)
        return (estimate / largest)[:, None]
    order = bias.abs().argsort(dim=1, descending=True, stable=True)
    chosen = order[:, torch.arange(samples, device=order.device) % bias.shape[1]]
    return weight.take_along_dim(chosen[..., None], 1) / bias.take_along_dim(chosen, 1)[..., None]


def label_parameters(model: nn.Module, input_shape: tuple[int, ...]) -> frozenset[str]:
    """Return the name of the parameter that gives labels: the classifier's bias, else its weight.

    Raises:
        IncompatibleError: the model has no dense classifier.
    """
    probe = next(model.parameters()).new_zeros(1, *input_shape)
    classifier = find_classifier(model, input_shape, model(probe).shape[1])
    return frozenset(parameters_of_labels(classifier)[:1])


def output_slopes(
    observation: Observation, layer: str, sample: Tensor, labels: Sequence[int]
) -> Tensor:
    """Compute the gradients of a sample's loss at the outputs of a layer, for some labels.

    Args:
        observation: gives the model and the loss.
        layer: name of a layer that the model uses once.
        sample: Shape (*shape).
        labels: L labels.

    Returns:
        Shape (L, outputs).
    """
    targets = torch.eye(observation.classes)[[*labels]].to(sample)
    return _slopes(observation, layer, sample.expand(len(labels), *sample.shape), targets)


def slopes_at(observation: Observation, layer: str, outputs: Tensor, labels: Tensor) -> Tensor:
    """Compute the gradients of samples' losses at given outputs of a layer.

    Args:
        observation: gives the model and the loss.
        layer: name of a layer that the model uses once.
        outputs: of the layer; Shape (M, neurons).
        labels: Shape (M).

    Returns:
        Shape (M, neurons).
    """
    replaced = outputs.to(next(observation.model.parameters()))
    unused = replaced.new_zeros(1, *observation.input_shape)
    targets = functional.one_hot(labels, observation.classes).to(replaced)
    return _slopes(observation, layer, unused, targets, replaced)


def _slopes(
    observation: Observation,
    layer: str,
    inputs: Tensor,
    targets: Tensor,
    replaced: Tensor | None = None,
) -> Tensor:
    """Compute gradients of losses at a layer's outputs, which are computed or replaced."""
    outputs: list[Tensor] = []

    def keep(_: nn.Module, __: tuple[Tensor, ...], output: Tensor) -> Tensor:
        outputs.append((output if replaced is None else replaced).detach().requires_grad_())
        return outputs[-1] * 1

    hook = observation.model.get_submodule(layer).register_forward_hook(keep)
    try:
        with torch.enable_grad():
            logits = observation.model(inputs)
            total = sample_losses(observation.loss, logits, targets.to(logits)).sum()
        (slopes,) = torch.autograd.grad(total, outputs)
    finally:
        hook.remove()
    return slopes
