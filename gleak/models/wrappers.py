"""Wrappers of torch around a network, and the names that they give to its parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gleak.core.lazy import torch


def unwrapped(model: torch.nn.Module) -> torch.nn.Module:
    """Return the network inside of `DataParallel`, `DistributedDataParallel` or `compile`."""
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
    """Return the name of the network in a wrapper of torch."""
    if isinstance(model, torch.nn.DataParallel | torch.nn.parallel.DistributedDataParallel):
        return "module"
    return "_orig_mod" if isinstance(getattr(model, "_orig_mod", None), torch.nn.Module) else None
