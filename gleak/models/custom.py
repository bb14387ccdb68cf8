"""User-defined networks."""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from typing import ClassVar, NamedTuple

from gleak.core.errors import SpecError
from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.data.base import Modality
from gleak.models.base import FirstLayer, ModelSpec
from gleak.models.parameters import in_known_precision
from gleak.runtime.seeding import drawing_from, torch_stream


class Size(NamedTuple):
    """Size of a network: multiply-adds of one sample's forward pass, and number of parameters."""

    multiply_adds: int
    parameters: int


ASSUMED = Size(10**8, 10**7)
"""Of a network that cannot be built, which is an error as soon as it is used."""


@register("custom")
class Custom(ModelSpec):
    """Network returned by a user's function ``factory(shape, classes)``.

    The module of the function must be importable (set ``PYTHONPATH``). An edit of that module, or
    of what it imports from its own package, reruns everything that depends on it.
    """

    modalities: ClassVar[frozenset[Modality]] = frozenset({"image", "tabular"})
    first_layer: ClassVar[FirstLayer] = "unknown"
    user_defined: ClassVar[bool] = True
    hidden_dense: ClassVar[bool | None] = None
    has_batch_norm: ClassVar[bool] = True
    """Unknown before building, so that attacks check the network."""

    factory: str = parameter(
        "my_models.build",
        "module and function, as in package.module.function",
        pattern=r"^\w+(\.\w+)+$",
    )

    @property
    def modules(self) -> frozenset[str]:
        return super().modules | {self.factory.rpartition(".")[0]}

    def build(self, shape: tuple[int, ...], classes: int) -> torch.nn.Module:
        """Build the network by the user's function, in a precision that attacks compute in.

        Raises:
            SpecError: the module or the function does not exist.
        """
        module, _, name = self.factory.rpartition(".")
        try:
            factory = getattr(import_module(module), name)
        except (ImportError, AttributeError, ValueError) as error:
            raise SpecError(
                f"model {self}: {error}; set PYTHONPATH to the folder of the module, and "
                "write factory=module.function"
            ) from error
        network = factory(shape, classes)
        return in_known_precision(network) if isinstance(network, torch.nn.Module) else network

    def first_dense_neurons(self, classes: int | None) -> None:
        """Return None, as the width is unknown before the network is built."""

    def multiply_adds(self, shape: tuple[int, ...], classes: int) -> int:
        return _size(self, shape, classes).multiply_adds

    def parameters(self, shape: tuple[int, ...], classes: int) -> int:
        return _size(self, shape, classes).parameters


@lru_cache(maxsize=16)
def _size(model: Custom, shape: tuple[int, ...], classes: int) -> Size:
    from torch.utils.flop_counter import FlopCounterMode

    try:
        with drawing_from(torch_stream(0, "construction")):
            network = model.build(shape, classes).eval()
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            network(next(network.parameters()).new_zeros(1, *shape))
    except Exception:
        return ASSUMED
    parameters = sum(value.numel() for value in network.parameters())
    return Size(counter.get_total_flops() // 2, parameters)
