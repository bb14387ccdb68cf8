"""Inputs, outputs and errors of the layers of a network in one forward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any

from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch

Hook = Callable[..., None]


@dataclass(frozen=True)
class Pass:
    """One forward pass through a layer.

    Args:
        name: of the layer; "" for the network itself.
        layer: the layer.
        inputs: its first argument, by position or by name; None if that is not a floating-point
            tensor.
        output: its output; None if that is not a floating-point tensor.
    """

    name: str
    layer: torch.nn.Module
    inputs: torch.Tensor | None
    output: torch.Tensor | None


def trace(network: torch.nn.Module, inputs: torch.Tensor) -> list[Pass]:
    """Run samples through a network and return the passes through its layers as they finish.

    Args:
        network: in the mode in which it runs.
        inputs: Shape (N, *shape).

    Raises:
        IncompatibleError: a layer runs inside of `torch.func.vmap`, which hides its values; names
            the layer.
    """
    with torch.no_grad():
        passes: list[Pass] = []
        pending: list[torch.Tensor | None] = []

        def before(_: str) -> Hook:
            def store(_: torch.nn.Module, given: tuple[Any, ...], named: Mapping[str, Any]) -> None:
                pending.append(_values(first_argument(given, named)))

            return store

        def after(name: str) -> Hook:
            def finish(layer: torch.nn.Module, _: Any, output: Any) -> None:
                if isinstance(output, torch.Tensor) and torch._C._functorch.is_batchedtensor(
                    output
                ):
                    raise IncompatibleError(
                        f"{describe_layer(network, name)} runs inside of torch.func.vmap, so that "
                        "its inputs and outputs cannot be examined; give it the whole batch"
                    )
                passes.append(Pass(name, layer, pending.pop(), _values(output)))

            return finish

        with _hooked(network, before=before, after=after):
            network(inputs.clone())
        return passes


def first_argument(given: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    """Return the first argument of a call; None if there is none."""
    return next(chain(given, named.values()), None)


def _values(value: Any) -> torch.Tensor | None:
    """Return a copy of a floating-point tensor, as a later layer may overwrite it, or None."""
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.detach().clone()
    return None


def failing_layer(network: torch.nn.Module, inputs: torch.Tensor) -> tuple[str, Exception] | None:
    """Run samples through a network and return the innermost layer that raises, with its error.

    Args:
        network: in the mode in which it runs.
        inputs: Shape (N, *shape).

    Returns:
        None if nothing is raised.
    """
    running: list[str] = []

    def before(name: str) -> Hook:
        return lambda *_: running.append(name)

    def after(_: str) -> Hook:
        def leave(*_: Any) -> None:
            running.pop()

        return leave

    with torch.no_grad(), _hooked(network, before=before, after=after):
        try:
            network(inputs.clone())
        except Exception as error:
            return (running[-1] if running else ""), error
    return None


def layer_without_graph(
    network: torch.nn.Module, compute: Callable[[], torch.Tensor]
) -> str | None:
    """Return the first layer that computes without a graph, on which a result depends.

    Returns:
        None if the result has a derivative by the samples; "" if the network's own forward cuts it.
    """
    cutting: list[str] = []

    def after(name: str) -> Hook:
        def compare(_: torch.nn.Module, given: tuple[Any, ...], output: Any) -> None:
            attached = any(isinstance(each, torch.Tensor) and each.requires_grad for each in given)
            if attached and isinstance(output, torch.Tensor) and not output.requires_grad:
                cutting.append(name)

        return compare

    with torch.enable_grad(), _hooked(network, after=after):
        if compute().grad_fn is not None:
            return None
    return (cutting or [""])[0]


def describe_layer(network: torch.nn.Module, name: str) -> str:
    """Return the description of a layer for errors: its name and class."""
    if not name:
        return f"the forward method of {type(network).__name__}"
    return f"layer {name!r} ({type(network.get_submodule(name)).__name__})"


@contextmanager
def _hooked(
    network: torch.nn.Module,
    before: Callable[[str], Hook] | None = None,
    after: Callable[[str], Hook] | None = None,
) -> Iterator[None]:
    """Register hooks for each layer, made from its name, in the block."""
    hooks = []
    for name, layer in network.named_modules():
        if before is not None:
            hooks.append(layer.register_forward_pre_hook(before(name), with_kwargs=True))
        if after is not None:
            hooks.append(layer.register_forward_hook(after(name)))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
