"""Checks of user-defined networks, which are built once before any job.

The checks of specs (`Cell.check`) do not cover them, as their properties are known only after they
are built. torch is loaded only if a cell has such a network.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path

from gleak.core.errors import GleakError, IncompatibleError
from gleak.core.lazy import torch
from gleak.models.base import ModelSpec
from gleak.models.batch_norm import run_by_clients
from gleak.models.examination import check_trainable
from gleak.runtime.seeding import drawing_from, torch_stream
from gleak.studies.cell import Cell


def is_own(cell: Cell) -> bool:
    """Return True if a cell's model is user-defined."""
    return "model" in cell.specs and cell.model.user_defined


def check_own_model(cell: Cell, data_dir: Path) -> None:
    """Check that a cell's user-defined network can be used.

    Cells of other models pass, and so do cells whose number of classes is unknown until their data
    are downloaded.

    Raises:
        SpecError: the module or function does not exist.
        IncompatibleError: the network cannot be built for these samples, is invalid, or is
            incompatible with another spec of the cell; names the spec and the reason.
    """
    if not is_own(cell) or (classes := cell.dataset.classes_in(data_dir)) is None:
        return
    built = own_network(cell.model, cell.dataset.shape, classes)
    for level, check in _checks(cell, built, classes).items():
        try:
            check()
        except IncompatibleError as error:
            named = f"{level} {cell.specs[level]} on model {cell.model}"
            raise IncompatibleError(f"{named}: {error}") from None


def own_network(model: ModelSpec, shape: tuple[int, ...], classes: int) -> torch.nn.Module:
    """Return a user-defined network, in evaluation mode; shared, so not to be changed.

    Raises:
        GleakError: of building it.
    """
    built = _built(model, shape, classes)
    if isinstance(built, GleakError):
        raise type(built)(str(built))
    return built


def _checks(cell: Cell, network: torch.nn.Module, classes: int) -> dict[str, Callable[[], None]]:
    """Return the check of the network by each level of the cell."""
    shape = cell.dataset.shape
    checks: dict[str, Callable[[], None]] = {}
    if "training" in cell.specs:
        checks["training"] = partial(cell.training.check_network, network, shape)
    if "crafting" in cell.specs:
        checks["crafting"] = partial(cell.crafting.check_network, network, shape, classes)
    if "client" in cell.specs:
        checks["client"] = partial(cell.client.check_network, network, shape)
        network = _cached_run_by_clients(network, cell.client.batch_norm)
    if "defense" in cell.specs:
        checks["defense"] = partial(cell.defense.check_network, network, shape)
    if "attack" in cell.specs:
        checks["attack"] = partial(cell.attack.check_network, network, shape, classes, cell.client)
    return checks


_cached_run_by_clients = lru_cache(4)(run_by_clients)
"""Returns the same network each time, as its checks are cached."""


@lru_cache(4)
def _built(model: ModelSpec, shape: tuple[int, ...], classes: int) -> torch.nn.Module | GleakError:
    """Return the network in evaluation mode, or the error that building it raised."""
    try:
        with drawing_from(torch_stream(0, "construction")):
            network = model.build(shape, classes)
    except GleakError as error:
        return error
    except Exception as error:
        return IncompatibleError(
            f"model {model}: its factory, called with shape {shape} and {classes} classes, raises "
            f"{type(error).__name__}: {error}"
        )
    if not isinstance(network, torch.nn.Module):
        kind = type(network).__name__
        return IncompatibleError(
            f"model {model}: its factory returns a {kind}, not a torch.nn.Module"
        )
    try:
        check_trainable(network.eval(), shape, classes)
    except IncompatibleError as error:
        return IncompatibleError(f"model {model}, samples of shape {shape}: {error}")
    return network
