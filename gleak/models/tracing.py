"""What happens in the layers of a network in one forward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

Hook = Callable[..., None]


@dataclass(frozen=True)
class Pass:
    """One pass through a layer.

    Args:
        name: of the layer; "" for the network itself.
        layer: the layer.
        given: its first argument; None if that is no tensor of floating point.
        output: what it gives; None if that is no tensor.
    """

    name: str
    layer: nn.Module
    given: Tensor | None
    output: Tensor | None


@torch.no_grad()
def trace(network: nn.Module, inputs: Tensor) -> list[Pass]:
    """Run samples through a network; return the passes through its layers as they finish.

    Args:
        network: in the mode it is to run in.
        inputs: Shape (N, *shape).
    """
    found: list[Pass] = []
    given: list[Tensor | None] = []

    def taker(_: str) -> Hook:
        def take(_: nn.Module, arguments: tuple[Any, ...]) -> None:
            given.append(_values(arguments[0]) if arguments else None)

        return take

    def keeper(name: str) -> Hook:
        def keep(layer: nn.Module, _: Any, output: Any) -> None:
            found.append(Pass(name, layer, given.pop(), _values(output)))

        return keep

    with _hooked(network, before=taker, after=keeper):
        network(inputs.clone())
    return found


def _values(value: Any) -> Tensor | None:
    """A copy of a tensor of floating point, as a later layer may overwrite it."""
    if isinstance(value, Tensor) and value.is_floating_point():
        return value.detach().clone()
    return None


def failing_layer(network: nn.Module, inputs: Tensor) -> tuple[str, Exception] | None:
    """Run samples through a network; return the innermost layer that raises, and its error.

    Args:
        network: in the mode it is to run in.
        inputs: Shape (N, *shape).

    Returns:
        None where nothing is raised.
    """
    running: list[str] = []

    def entering(name: str) -> Hook:
        return lambda *_: running.append(name)

    def leaving(_: str) -> Hook:
        def leave(*_: Any) -> None:
            running.pop()

        return leave

    with torch.no_grad(), _hooked(network, before=entering, after=leaving):
        try:
            network(inputs.clone())
        except Exception as error:
            return (running[-1] if running else ""), error
    return None


def described(network: nn.Module, name: str) -> str:
    """Return how an error names a layer: name and class, or the class of the network itself."""
    if not name:
        return f"the forward method of {type(network).__name__}"
    return f"layer {name!r} ({type(network.get_submodule(name)).__name__})"


@contextmanager
def _hooked(
    network: nn.Module,
    before: Callable[[str], Hook] | None = None,
    after: Callable[[str], Hook] | None = None,
) -> Iterator[None]:
    """Register hooks of every layer, made from its name, for the block."""
    hooks = []
    for name, layer in network.named_modules():
        if before is not None:
            hooks.append(layer.register_forward_pre_hook(before(name)))
        if after is not None:
            hooks.append(layer.register_forward_hook(after(name)))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
