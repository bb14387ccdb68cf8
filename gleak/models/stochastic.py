"""Stochastic layers: those that draw random numbers in training mode, such as dropout.

When clients train, only these layers of a broadcast network are in training mode; the mode of batch
normalisation is a field of the client (`gleak.models.batch_norm`). The last functions are about
PRECODE's variational block (Scheliga et al. 2022), whose noise an attack can take for inputs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from gleak.core.lazy import torch
from gleak.models.parameters import shared_copy
from gleak.runtime.seeding import own_draws

if TYPE_CHECKING:
    from gleak.models.layers import GaussianSample

SAMPLES = 2
_NAMES: WeakKeyDictionary[torch.nn.Module, tuple[str, ...]] = WeakKeyDictionary()
"""Results of `stochastic_layers` by network."""


@contextmanager
def stochastic_training_mode(network: torch.nn.Module, inputs: torch.Tensor) -> Iterator[None]:
    """Put only the stochastic layers, found by inputs, into training mode, in the block."""
    layers = [network.get_submodule(name) for name in stochastic_layers(network, inputs)]
    switched = [layer for layer in layers if not layer.training]
    for layer in switched:
        layer.training = True
    try:
        yield
    finally:
        for layer in switched:
            layer.training = False


def stochastic_layers(network: torch.nn.Module, inputs: torch.Tensor) -> tuple[str, ...]:
    """Return the names of the layers that draw random numbers in training mode.

    They are found by running a copy of the network once on inputs, Shape (N, *shape), and watching
    torch's random state. Results are cached.
    """
    if network not in _NAMES:
        copied = shared_copy(network).train()
        for layer in copied.modules():
            if isinstance(layer, torch.nn.modules.batchnorm._NormBase):
                layer.eval()
        samples = inputs[:1].expand(SAMPLES, *inputs.shape[1:]).detach().clone()
        _NAMES[network] = sampling_layers(copied, samples)
    return _NAMES[network]


def deterministic_copy(network: torch.nn.Module) -> torch.nn.Module:
    """Return a copy in evaluation mode that shares the parameters and never draws."""
    copied = shared_copy(network).eval()
    _NAMES[copied] = ()
    return copied


def sampling_layers(network: torch.nn.Module, inputs: torch.Tensor) -> tuple[str, ...]:
    """Return the names of the innermost layers that draw from torch's random state in one pass.

    The random state is restored.
    """
    read_state = torch.cuda.get_rng_state if inputs.device.type == "cuda" else torch.get_rng_state
    names: dict[str, None] = {}
    running, state = [""], read_state()

    def attribute() -> None:
        nonlocal state
        before, state = state, read_state()
        if not torch.equal(before, state):
            names[running[-1]] = None

    def enter(name: str, *_: object) -> None:
        attribute()
        running.append(name)

    def leave(*_: object) -> None:
        attribute()
        running.pop()

    with torch.no_grad(), own_draws(), ExitStack() as hooks:
        for name, layer in network.named_modules():
            entering = layer.register_forward_pre_hook(partial(enter, name), prepend=True)
            hooks.enter_context(entering)
            hooks.enter_context(layer.register_forward_hook(leave))
        network(inputs)
    return tuple(names)


def noise_sizes(network: torch.nn.Module, shape: tuple[int, ...]) -> list[int]:
    """Return the number of values that each variational layer samples, in the order of layers."""
    sizes: dict[torch.nn.Module, int] = {}

    def note(layer: torch.nn.Module, _: Any, output: torch.Tensor) -> None:
        sizes[layer] = output.shape[-1]

    layers = sampling(network)
    with torch.no_grad(), ExitStack() as hooks:
        for layer in layers:
            hooks.enter_context(layer.register_forward_hook(note))
        network(next(network.parameters()).new_zeros(2, *shape))
    return [sizes[layer] for layer in layers if layer in sizes]


def sampling(network: torch.nn.Module) -> list[GaussianSample]:
    from gleak.models.layers import GaussianSample

    return [layer for layer in network.modules() if isinstance(layer, GaussianSample)]


def with_noise_as_input(network: torch.nn.Module, shape: tuple[int, ...]) -> torch.nn.Module:
    """Return a copy, of shared parameters, whose inputs are flat samples and then all noise.

    It maps Shape (N, P + K) to logits, P the values of a sample and K those of `noise_sizes`. So
    everything that differentiates a network by its samples does so by the noise, too.
    """
    copied = shared_copy(network)
    copied.register_forward_pre_hook(partial(_split, shape, noise_sizes(network, shape)))
    copied.register_forward_hook(_forget_noise)
    return copied


def _split(
    shape: tuple[int, ...], sizes: Sequence[int], network: torch.nn.Module, given: Any
) -> torch.Tensor:
    values, *noise = given[0].split([math.prod(shape), *sizes], dim=1)
    for layer, part in zip(sampling(network), noise, strict=True):
        layer.noise = part
    unflattened: torch.Tensor = values.unflatten(1, shape)
    return unflattened


def _forget_noise(network: torch.nn.Module, *_: Any) -> None:
    for layer in sampling(network):
        layer.noise = None
