"""Parameters of networks and their names, copies of networks, and wrappers around them."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from operator import attrgetter
from typing import Any

import numpy as np

from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch

Tensors = dict[str, "torch.Tensor"]
"""Values by the name of a parameter."""
LARGEST_DOUBLE_COPY = 2**24
"""Largest number of parameters of a network that `double_copy` copies in double precision."""


def broadcast_state(network: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return what a server broadcasts before each round: parameters and buffers of real numbers."""
    buffers = {name: value for name, value in network.named_buffers() if value.is_floating_point()}
    return {**dict(network.named_parameters()), **buffers}


def trained_parameters(network: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    """Return the parameters that require a gradient, by name.

    The others are frozen: clients neither train nor send them, and no attack matches them. One
    that several layers share has its first name only.

    Raises:
        IncompatibleError: all parameters are frozen.
    """
    trained = {name: value for name, value in network.named_parameters() if value.requires_grad}
    if not trained:
        raise IncompatibleError(
            f"network {type(network).__name__} has no parameter that requires a gradient, so "
            "clients have nothing to train; set requires_grad on the parameters to train"
        )
    return trained


def shared_copy(network: torch.nn.Module) -> torch.nn.Module:
    """Return a copy of a network that shares its parameters, but not buffers and modes."""
    memo = {id(value): value for value in network.parameters()}
    return copy.deepcopy(network, memo | _derived_values(network))


def independent_copy(network: torch.nn.Module) -> torch.nn.Module:
    """Return a copy of a network that shares nothing with it."""
    return copy.deepcopy(network, _derived_values(network))


def double_copy(network: torch.nn.Module, inputs: torch.Tensor) -> torch.nn.Module:
    """Return a copy in double precision, or in the network's precision if that is not possible.

    It is not possible for networks that compute in a fixed precision, as samples that they accept
    show, and not done for those of more than `LARGEST_DOUBLE_COPY` parameters, to save memory.
    """
    if sum(value.numel() for value in network.parameters()) <= LARGEST_DOUBLE_COPY:
        doubled = independent_copy(network).double()
        try:
            with torch.no_grad():
                doubled(inputs.double())
        except RuntimeError:
            pass
        else:
            return doubled
    return independent_copy(network)


def dtype_of(network: torch.nn.Module) -> torch.dtype:
    return next(network.parameters()).dtype


def as_inputs(network: torch.nn.Module, samples: np.ndarray) -> torch.Tensor:
    """Return samples in the precision and on the device of a network; Shape as given."""
    return torch.from_numpy(samples).to(next(network.parameters()))


def in_known_precision(network: torch.nn.Module) -> torch.nn.Module:
    """Convert a network in place to a precision that attacks compute in, and return it.

    One that mixes single and double precision is computed in double, and other precisions in
    single.
    """
    known = {torch.float32, torch.float64}
    kinds = {value.dtype for value in network.parameters()}
    if kinds == known:
        return network.double()
    return network if kinds <= known else network.float()


def random_samples(network: torch.nn.Module, count: int, shape: tuple[int, ...]) -> torch.Tensor:
    """Draw uniform samples in [0, 1], Shape (N, *shape), the same in every call."""
    generator = torch.Generator().manual_seed(0)
    drawn = torch.rand(count, *shape, generator=generator, dtype=torch.float32)
    return drawn.to(next(network.parameters()))


def _derived_values(network: torch.nn.Module) -> dict[int, Any]:
    """Return values that replace, in `copy.deepcopy`, tensors that it cannot copy, by their ids.

    Older reparametrisations (weight norm, spectral norm, pruning) keep the computed weight as an
    attribute of the layer and compute it anew in every forward pass.
    """
    return {
        id(value): value.detach().clone()
        for layer in network.modules()
        for value in vars(layer).values()
        if isinstance(value, torch.Tensor) and not value.is_leaf
    }


def check_trained(network: torch.nn.Module, read: Collection[str]) -> None:
    """Check that clients send the updates of parameters that an attack reads.

    Raises:
        IncompatibleError: names the first one that is frozen, shared, or computed from others.
    """
    trained = {name: value.requires_grad for name, value in network.named_parameters()}
    for name in sorted(read):
        if not trained.get(name) and _has_value(network, name):
            why = "frozen" if name in trained else "shared or computed from other parameters"
            raise IncompatibleError(
                f"the attack reads the gradient of {name}, which is {why} in this model, so that "
                "clients do not send it; use an attack that matches gradients"
            )


def _has_value(network: torch.nn.Module, name: str) -> bool:
    try:
        attrgetter(name)(network)
    except AttributeError:
        return False
    return True


def unwrapped(model: torch.nn.Module) -> torch.nn.Module:
    while (inner := _inside(model)) is not None:
        model = getattr(model, inner)
    return model


def prefix_of(model: torch.nn.Module) -> str:
    """Return what a wrapper puts before the names of its network's parameters."""
    inner = _inside(model)
    return "" if inner is None else f"{inner}.{prefix_of(getattr(model, inner))}"


def without_prefix(values: Any, model: torch.nn.Module) -> Any:
    """Replace the names of a wrapper's parameters in a mapping by those of the network inside."""
    prefix = prefix_of(model)
    if not prefix or not isinstance(values, Mapping):
        return values
    return {name.removeprefix(prefix): value for name, value in values.items()}


def _inside(model: torch.nn.Module) -> str | None:
    if isinstance(model, torch.nn.DataParallel | torch.nn.parallel.DistributedDataParallel):
        return "module"
    return "_orig_mod" if isinstance(getattr(model, "_orig_mod", None), torch.nn.Module) else None
