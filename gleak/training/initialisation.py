"""Initial parameters of a network: random, or read from a file."""

from __future__ import annotations

import logging

from gleak.core.lazy import torch
from gleak.runtime.hub_weights import State, check_weights, read_weights
from gleak.runtime.seeding import drawing_from, torch_stream
from gleak.training.base import Init

COUNTER = "num_batches_tracked"
log = logging.getLogger(__name__)


def initialise(network: torch.nn.Module, init: Init, bound: float, seed: int) -> None:
    """Draw all parameters of a network, on the CPU so that the device changes no draw.

    Args:
        network: changed in place.
        init: "default" for the initialisation of torch's layers; "kaiming" for normal weights of
            convolutions with variance 2 / (outputs x kernel size), and torch's for all other
            parameters, as in torchvision's ResNets (He et al. 2015, section 2.2, backward case);
            "uniform" on [-bound, bound].
        bound: bound of the uniform initialisation.
        seed: seed of the run.
    """
    device = next(network.parameters()).device
    network.cpu()
    stream = torch_stream(seed, "initialisation")
    if init == "uniform":
        for parameter in network.parameters():
            torch.nn.init.uniform_(parameter, -bound, bound, generator=stream)
    else:
        with drawing_from(stream):
            _reset_layers(network)
            if init == "kaiming":
                _draw_kaiming(network)
    network.to(device)


def _reset_layers(network: torch.nn.Module) -> None:
    for layer in network.modules():
        reset = getattr(layer, "reset_parameters", None)
        if callable(reset):
            reset()


def _draw_kaiming(network: torch.nn.Module) -> None:
    for layer in network.modules():
        if isinstance(layer, torch.nn.Conv2d):
            torch.nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")


def load_weights(network: torch.nn.Module, name: str) -> None:
    """Read parameters and buffers from a file in the cache of ``torch.hub``.

    Args:
        network: changed in place; its last layer is not changed if that of the file has another
            number of classes.
        name: name of the file.

    Raises:
        ArtifactError: the file is missing or altered, contains anything but tensors, or tensors
            with other names or shapes, or values that are not finite.
    """
    path, weights = read_weights(name)
    state = network.state_dict()
    kept = {**_other_classes(weights, state), **missing_counters(weights, state)}
    check_weights(path, weights, state, kept)
    network.load_state_dict({**weights, **kept})


def _other_classes(weights: State, state: State) -> State:
    """Return the network's last layer if the file's only differs in the number of outputs."""
    *_, last = state
    layer, _, _ = last.rpartition(".")
    kept = {name: value for name, value in state.items() if name.rpartition(".")[0] == layer}
    for name, value in kept.items():
        theirs, ours = weights[name].shape if name in weights else value.shape, value.shape
        if theirs[1:] != ours[1:] or theirs[:1] == ours[:1]:
            return {}
    log.warning(
        "layer %s keeps its random initialisation: it has %d outputs in the file and %d in the "
        "network",
        *(layer, len(weights[last]), len(state[last])),
    )
    return kept


def missing_counters(weights: State, state: State) -> State:
    """Return the batch counters of normalisation layers that a file lacks, as older files do.

    Args:
        weights: tensors in a file.
        state: tensors of the network, from which the counters are taken.
    """
    return {
        name: state[name]
        for name in state.keys() - weights.keys()
        if name.rpartition(".")[2] == COUNTER
    }
