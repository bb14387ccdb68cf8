"""A dense layer's inputs, read off the gradients of its weight and bias."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gleak.errors import FitError
from gleak.matching.labels import classifier_parameter
from gleak.models.embedding import first_dense_layer


def dense_layer_of_samples(network: nn.Module, shape: tuple[int, ...]) -> str:
    """Name of the dense layer with a bias that takes the flattened samples as they are.

    Args:
        network: in the state it is to run in.
        shape: of a sample.

    Raises:
        FitError: the model has no such layer.
    """
    layer = first_dense_layer(network, shape)
    if layer is None or not layer.takes_samples:
        raise FitError(
            "the attack reads samples off a dense layer with a bias that takes them as they are, "
            "and this model has none; use mlp or fc2"
        )
    return layer.name


def read_inputs(weight: Tensor, bias: Tensor, samples: int) -> Tensor:
    """What each candidate for an input is; not finite where its bias gradient is zero.

    Of N samples the bias gradient of neuron k is the sum over samples of d_ik, and its weight
    gradient that of d_ik x_i: their ratio is a mean of the inputs x_i, with weights that may be
    negative. For one sample it is the input itself at every neuron, so it is found by least
    squares over all of them, W^T b / b^T b. For more, the neurons whose bias gradient is largest
    in magnitude give one candidate each; a layer of fewer neurons gives its candidates again.

    Args:
        weight: W, the weight's gradient; Shape (V, neurons, F).
        bias: b, that of the bias; Shape (V, neurons).
        samples: N.

    Returns:
        Shape (V, N, F).
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
    """Names of what labels are read off: the classifier's bias, or its weight if it has none.

    Raises:
        FitError: the model has no classifier that is dense.
    """
    probe = next(model.parameters()).new_zeros(1, *input_shape)
    return frozenset({classifier_parameter(model, model(probe).shape[1])})
