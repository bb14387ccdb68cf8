"""Layers that draw random numbers in training mode: dropout of every kind and the like.

A broadcast network is in evaluation mode. Where clients train, its stochastic layers alone are in
training mode, so that normalisation goes by running statistics while dropout draws its masks.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from gleak.models.parameters import shared_copy

SAMPLES = 2
_NAMES: WeakKeyDictionary[nn.Module, tuple[str, ...]] = WeakKeyDictionary()
"""Stochastic layers of the networks that have been examined."""


@contextmanager
def sampling(network: nn.Module, inputs: Tensor) -> Iterator[None]:
    """Put the stochastic layers of a network into training mode; others stay in their mode.

    Args:
        network: whose layers draw in the block.
        inputs: samples that it takes, to find these layers with; Shape (N, *shape).
    """
    layers = [network.get_submodule(name) for name in stochastic_layers(network, inputs)]
    resting = [layer for layer in layers if not layer.training]
    for layer in resting:
        layer.training = True
    try:
        yield
    finally:
        for layer in resting:
            layer.training = False


def stochastic_layers(network: nn.Module, inputs: Tensor) -> tuple[str, ...]:
    """Return the names of the layers that draw random numbers in training mode.

    They are found by running a copy of the network once and watching torch's random state; what is
    found is remembered.

    Args:
        network: left as it is.
        inputs: samples that it takes; Shape (N, *shape).
    """
    if network not in _NAMES:
        copied = shared_copy(network).train()
        for layer in copied.modules():
            if isinstance(layer, _NormBase):
                layer.eval()
        some = inputs[:1].expand(SAMPLES, *inputs.shape[1:]).detach().clone()
        _NAMES[network] = drawing_layers(copied, some)
    return _NAMES[network]


def deterministic_copy(network: nn.Module) -> nn.Module:
    """Return a copy in evaluation mode that shares the parameters and never draws.

    Args:
        network: left as it is.
    """
    copied = shared_copy(network).eval()
    _NAMES[copied] = ()
    return copied


@torch.no_grad()
def drawing_layers(network: nn.Module, inputs: Tensor) -> tuple[str, ...]:
    """Return the names of the layers that draw from torch's random state in one forward pass.

    A layer's own draws count, not those of the layers within it. The random state is afterwards as
    before.

    Args:
        network: in the mode it is to run in.
        inputs: Shape (N, *shape).
    """
    with torch.random.fork_rng(devices=range(torch.accelerator.device_count())):
        watch = _Watch(network, inputs.device)
        with watch:
            network(inputs)
    return tuple(watch.found)


class _Watch:
    """Forward hooks that attribute changes of the random state to layers."""

    def __init__(self, network: nn.Module, device: torch.device) -> None:
        self.found: dict[str, None] = {}
        self._device, self._running = device, [""]
        self._state = self._read()
        self._hooks = [
            hook
            for name, layer in network.named_modules()
            for hook in (
                layer.register_forward_pre_hook(self._entering(name), prepend=True),
                layer.register_forward_hook(self._leave),
            )
        ]

    def __enter__(self) -> None:
        self._state = self._read()

    def __exit__(self, *_: object) -> None:
        for hook in self._hooks:
            hook.remove()

    def _read(self) -> Tensor:
        return torch.get_rng_state() if self._device.type == "cpu" else torch.cuda.get_rng_state()

    def _entering(self, name: str) -> Any:
        def enter(*_: object) -> None:
            self._attribute()
            self._running.append(name)

        return enter

    def _leave(self, *_: object) -> None:
        self._attribute()
        self._running.pop()

    def _attribute(self) -> None:
        """Credit what was drawn since the last hook to the innermost layer that is running."""
        state = self._read()
        if not torch.equal(state, self._state):
            self.found[self._running[-1]] = None
            self._state = state
