"""Users' own networks: built once before any job, and shown to every part of a cell.

Only the built network tells what it is, so the checks of specs (`Cell.check`) say
nothing of it. torch is imported where there is such a network, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from gleak.core.errors import GleakError, IncompatibleError

if TYPE_CHECKING:
    from torch import nn

    from gleak.experiments.cell import Cell
    from gleak.models.base import ModelSpec

KEPT = 4
"""Networks that stay in memory after they were built."""


def is_own(cell: Cell) -> bool:
    """Whether a cell's model is a user's own."""
    return "model" in cell.specs and cell.model.user_defined


def check_own_model(cell: Cell, data_dir: Path) -> None:
    """Refuse a cell whose model is a user's own network that cannot be used, or not there.

    Cells of other models pass, and so do those whose number of classes is not known before their
    data are downloaded.

    Args:
        cell: cut short after any level.
        data_dir: where the user keeps data.

    Raises:
        SpecError: there is no such module or function.
        IncompatibleError: the network cannot be built for these samples, is no sound network, or
            does not
            serve another spec of the cell; says which and why.
    """
    if not is_own(cell) or (classes := cell.dataset.classes_in(data_dir)) is None:
        return
    built = _built(cell.model, cell.dataset.shape, classes)
    if isinstance(built, GleakError):
        raise type(built)(str(built))
    for level, check in _checks(cell, built, classes).items():
        try:
            check()
        except IncompatibleError as error:
            named = f"{level} {cell.specs[level]} on model {cell.model}"
            raise IncompatibleError(f"{named}: {error}") from None


def _checks(cell: Cell, network: nn.Module, classes: int) -> dict[str, Callable[[], None]]:
    """What each level asks of the network."""
    shape = cell.dataset.shape
    asked = {
        "training": (network, shape),
        "crafting": (network, shape, classes),
        "defense": (network, shape),
        "attack": (network, shape, classes, cell.specs.get("client")),
    }
    return {
        level: partial(cell.specs[level].check_network, *arguments)
        for level, arguments in asked.items()
        if level in cell.specs
    }


@lru_cache(KEPT)
def _built(model: ModelSpec, shape: tuple[int, ...], classes: int) -> nn.Module | GleakError:
    """The network in evaluation mode, or why there is none."""
    try:
        return _build(model, shape, classes)
    except GleakError as error:
        return error


def _build(model: ModelSpec, shape: tuple[int, ...], classes: int) -> nn.Module:
    from torch import nn

    from gleak.models.examination import check_trainable
    from gleak.runtime.seeding import drawing_from, torch_stream

    try:
        with drawing_from(torch_stream(0, "construction")):
            network = model.build(shape, classes)
    except GleakError:
        raise
    except Exception as error:
        raise IncompatibleError(
            f"model {model}: its factory, called with shape {shape} and {classes} classes, raises "
            f"{type(error).__name__}: {error}"
        ) from error
    if not isinstance(network, nn.Module):
        kind = type(network).__name__
        raise IncompatibleError(
            f"model {model}: its factory returns a {kind}, not a torch.nn.Module"
        )
    try:
        check_trainable(network.eval(), shape, classes)
    except IncompatibleError as error:
        raise IncompatibleError(f"model {model}, samples of shape {shape}: {error}") from None
    return network
