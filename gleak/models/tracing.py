"""Inputs, outputs and errors of the layers of a network in one forward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any

from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch

Hook = Callable[..., None]


@dataclass(frozen=True)
class Pass:
    """One forward pass through a layer, whose name is "" for the network itself.

    ``inputs`` is its first argument, by position or by name. It and the output are None if they are
    not floating-point tensors.
    """

    name: str
    layer: torch.nn.Module
    inputs: torch.Tensor | None
    output: torch.Tensor | None


def trace(network: torch.nn.Module, inputs: torch.Tensor) -> list[Pass]:
    """Run samples, Shape (N, *shape), through a network; return passes through layers as they end.

    Raises:
        IncompatibleError: a layer runs inside of `torch.func.vmap`, which hides its values; names
            the layer.
    """
    with torch.no_grad():
        passes: list[Pass] = []
        pending: list[torch.Tensor | None] = []

        def before(_: str) -> Hook:
            def store(_: object, given: tuple[Any, ...], named: Mapping[str, Any]) -> None:
                pending.append(_values(first_argument(given, named)))

            return store

        def after(name: str) -> Hook:
            def finish(layer: torch.nn.Module, _: Any, output: Any) -> None:
                is_tensor = isinstance(output, torch.Tensor)
                if is_tensor and torch._C._functorch.is_batchedtensor(output):
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

    None: nothing is raised.
    """
    running: list[str] = []

    def before(name: str) -> Hook:
        return lambda *_: running.append(name)

    def leave(*_: object) -> None:
        running.pop()

    with torch.no_grad(), _hooked(network, before=before, after=lambda _: leave):
        try:
            network(inputs.clone())
        except Exception as error:
            return (running[-1] if running else ""), error
    return None


def layer_without_graph(
    network: torch.nn.Module, compute: Callable[[], torch.Tensor]
) -> str | None:
    """Return the first layer that computes without a graph, on which a result depends.

    It is "" if the network's own forward cuts the graph, and None if nothing does.
    """
    cutting: list[str] = []

    def after(name: str) -> Hook:
        def compare(_: object, given: tuple[Any, ...], output: Any) -> None:
            attached = any(getattr(argument, "requires_grad", False) for argument in given)
            if attached and isinstance(output, torch.Tensor) and not output.requires_grad:
                cutting.append(name)

        return compare

    with torch.enable_grad(), _hooked(network, after=after):
        if compute().grad_fn is not None:
            return None
    return (cutting or [""])[0]


def describe_layer(network: torch.nn.Module, name: str) -> str:
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
    with ExitStack() as hooks:
        for name, layer in network.named_modules():
            if before is not None:
                hook = layer.register_forward_pre_hook(before(name), with_kwargs=True)
                hooks.enter_context(hook)
            if after is not None:
                hooks.enter_context(layer.register_forward_hook(after(name)))
        yield
