"""Parameters that are left out of the match."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType

from gleak.core.errors import IncompatibleError, nearest
from gleak.core.lazy import torch
from gleak.models.layer_search import DenseInput, first_dense_input, last_dense_input

Find = Callable[["torch.nn.Module", "torch.Tensor"], DenseInput | None]
WORDS: Mapping[str, Find] = MappingProxyType(
    {"first_dense": first_dense_input, "classifier": last_dense_input}
)
"""Layers that are named by their place, as by the field ``layer`` of `soteria`."""
SEPARATOR = "-"


def skipped_parameters(
    network: torch.nn.Module, shape: tuple[int, ...], names: Collection[str], skip: str | None
) -> frozenset[str]:
    """Return the names of the parameters that a pattern leaves out.

    Args:
        network: in evaluation mode.
        shape: of a sample.
        names: of the trained parameters.
        skip: names of parameters or modules, or of `WORDS`, with `SEPARATOR` between them.

    Raises:
        IncompatibleError: a name is unknown, or nothing is left; names it.
    """
    if skip is None:
        return frozenset()
    modules = [_layer_name(network, shape, part) for part in skip.split(SEPARATOR)]
    found = frozenset(name for name in names if any(_belongs(name, one) for one in modules))
    for module in modules:
        if not any(_belongs(name, module) for name in names):
            options = {*WORDS, *names, *_modules(names)}
            raise IncompatibleError(f"skip={skip}: unknown {module!r}; {nearest(module, options)}")
    if len(found) == len(names):
        raise IncompatibleError(f"skip={skip} leaves out all parameters; name fewer layers")
    return found


def _belongs(name: str, module: str) -> bool:
    """Return True if a parameter is the named one, or within the named module."""
    return name == module or name.startswith(f"{module}.")


def _modules(names: Collection[str]) -> set[str]:
    return {name.rpartition(".")[0] for name in names}


def _layer_name(network: torch.nn.Module, shape: tuple[int, ...], name: str) -> str:
    """Return the name of the layer that a word stands for; other names as they are."""
    if name not in WORDS:
        return name
    with torch.no_grad():
        found = WORDS[name](network, next(network.parameters()).new_zeros(1, *shape))
    if found is None:
        raise IncompatibleError(
            f"skip={name}: the model has no dense layer that is called once with one vector per "
            "sample; name the layer"
        )
    return found.layer
