"""A GPU that computes shapes, devices and memory, but no values, to rehearse jobs without one.

Its tensors are those of torch's ``meta`` device. `VirtualGPU` adds what a GPU has and ``meta``
lacks: it refuses tensors and generators of two devices in one operation, counts the memory of the
tensors that are alive, and gives values to tensors that are copied to the CPU. Fake tensors with a
CUDA device (`torch._subclasses.FakeTensorMode`) cannot be moved to that device or indexed in a
torch without CUDA (2.13), and convolutions accept arguments of two devices.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from functools import partial
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from gleak.core.errors import DeviceError

aten = torch.ops.aten
T = TypeVar("T")
DEVICE = torch.device("meta")
GIGABYTE = 10**9
MASKS = (torch.bool, torch.uint8)
LARGEST_COPY = 2**22
"""Most values of a tensor copied to the CPU that are drawn; those of a larger one are zero."""
MOVING = {aten._to_copy, aten.copy_, aten.copy, aten.set_}
"""Operations whose purpose is to combine two devices."""
INDEXING = {aten.index, aten.index_put, aten.index_put_, aten._index_put_impl_}
"""Operations that take indices on the CPU for tensors of a GPU."""
ALLOCATING = {aten.empty, aten.empty_like, aten.empty_strided, aten.new_empty, aten._unsafe_view}
"""Operations without kernels that are no views either."""


class VirtualGPU(TorchDispatchMode):
    """Virtual GPU with its memory, active in a ``with`` block.

    Values are unknown. A number or truth value that the program reads from a tensor is zero, all
    entries of a mask are true, two tensors are equal if they are the same memory and close if they
    have the same shape, and values that are copied to the CPU are random. Those of a large tensor
    are zero and take no memory until they are written.

    Memory is that of the tensors: without the context of CUDA, the workspace of cuDNN and gaps
    between blocks.

    Args:
        capacity: memory in bytes.

    Attributes:
        launches: number of operations that start kernels of a GPU; each counts once.
        synchronisations: number of operations that wait for a GPU: copies to or from the CPU,
            values that the program reads, and results whose shape depends on values.
    """

    _active: ClassVar[list[VirtualGPU]] = []

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self.capacity = capacity
        self.used = self.peak = 0
        self.launches = self.synchronisations = 0
        self.fault: DeviceError | None = None
        self._alive: dict[int, weakref.ref[Any]] = {}

    def __enter__(self) -> Self:
        self._active.append(self)
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._active.pop()
        super().__exit__(*error)

    @classmethod
    def free_memory(cls) -> int:
        """Return the free memory, in bytes, of the virtual GPU whose block is running."""
        if not cls._active:
            raise DeviceError("tensors of the device 'meta' have no values; use 'cpu' or 'cuda'")
        gpu = cls._active[-1]
        return max(0, gpu.capacity - gpu.used)

    def begin(self) -> None:
        """Measure the peak from now on, and forget earlier faults."""
        self.peak, self.fault = self.used, None

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        options = dict(kwargs or {})
        given = [*_tensors([*args, *options.values()])]
        try:
            _check_devices(func, given)
            result = _run(func, args, options, any(map(_virtual, given)))
            made = [value for value in _tensors([result]) if _virtual(value)]
            if made:
                _draw(func, options)
        except DeviceError as error:
            self.fault = self.fault or error
            raise
        if made or any(map(_virtual, given)):
            self.launches += not (func.is_view or func.overloadpacket in ALLOCATING)
            self.synchronisations += _synchronises(func, args, options)
        for value in made:
            self._count(value.untyped_storage())
        return result

    def _count(self, storage: torch.UntypedStorage) -> None:
        """Add the memory of a tensor, until it is freed; if it does not fit, fail as a GPU does."""
        key, size = storage._cdata, storage.nbytes()
        if key not in self._alive:
            self._alive[key] = weakref.ref(storage, partial(self._release, key, size))
            self.used += size
            if self.used > self.capacity:
                raise torch.OutOfMemoryError(
                    f"{self.used / GIGABYTE:.2g} GB is more than the "
                    f"{self.capacity / GIGABYTE:g} GB of the GPU"
                )
            self.peak = max(self.peak, self.used)

    def _release(self, key: int, size: int, _: weakref.ref[Any]) -> None:
        del self._alive[key]
        self.used -= size


def _tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    """Return the tensors among arguments or results, and in lists of them."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


def _virtual(value: Tensor) -> bool:
    return value.device.type == DEVICE.type


def _check_devices(func: Any, given: Sequence[Tensor]) -> None:
    """Refuse tensors of two devices, except single numbers, copies and indices on the CPU."""
    others = [value for value in given if not _virtual(value) and value.ndim]
    if not others or not any(map(_virtual, given)) or func.overloadpacket in MOVING:
        return
    if func.overloadpacket in INDEXING and _virtual(given[0]):
        return
    raise DeviceError(
        f"{func} is given a tensor on the GPU and one of shape {tuple(others[0].shape)} on the "
        "CPU; move it with .to(), or create it with device="
    )


def _draw(func: Any, options: Mapping[str, Any]) -> None:
    """Advance the random state if an operation draws on the GPU, so that watching it shows this."""
    if torch.Tag.nondeterministic_seeded not in func.tags:
        return
    if options.get("generator") is not None:
        raise DeviceError(
            f"{func} draws on the GPU with a generator of the CPU; draw on the CPU and move the "
            "result with .to()"
        )
    torch.rand(1)


def _run(func: Any, args: Sequence[Any], options: dict[str, Any], virtual: bool) -> Any:
    """Call an operation, with an answer where it depends on values of the GPU."""
    packet, device = func.overloadpacket, options.get("device")
    if not virtual:
        return func(*args, **options)
    if packet in ANSWERS:
        return ANSWERS[packet](*args, **options)
    if packet in INDEXING:
        return func(args[0], _without_masks(args[1]), *args[2:], **options)
    if packet is aten._to_copy and device and device.type != DEVICE.type and _virtual(args[0]):
        return _copied(func, args[0], options)
    if packet is aten.copy_ and _virtual(args[1]) and not _virtual(args[0]):
        return func(args[0], _invented(args[1]), *args[2:], **options)
    return func(*args, **options)


def _synchronises(func: Any, args: Sequence[Any], options: Mapping[str, Any]) -> bool:
    """Return True if an operation on tensors of the GPU makes the program wait for their values."""
    packet = func.overloadpacket
    if packet is aten._to_copy:
        return _virtual(args[0]) != (options.get("device", args[0].device).type == DEVICE.type)
    if packet is aten.copy_:
        return _virtual(args[0]) != _virtual(args[1])
    if packet in INDEXING:
        given = [index for index in args[1] if index is not None]
        return any(not _virtual(one) or one.dtype in MASKS for one in given)
    return packet in ANSWERS


def _copied(func: Any, value: Tensor, options: dict[str, Any]) -> Tensor:
    """Copy a tensor of the GPU to the CPU, to another type if the options say so."""
    if value.numel() <= LARGEST_COPY:
        copied: Tensor = func(_invented(value), **options)
        return copied
    dtype = options.get("dtype") or value.dtype
    # The system maps zeros of numpy: the process has no memory of them until it writes.
    zeros = np.zeros(value.numel() * dtype.itemsize, np.uint8)
    return torch.from_numpy(zeros).view(dtype).view(value.shape)


def _invented(value: Tensor) -> Tensor:
    """Return values on the CPU in place of those of a tensor on the GPU."""
    if value.numel() > LARGEST_COPY or not value.is_floating_point():
        return torch.zeros((), dtype=value.dtype).expand(value.shape)
    generator = torch.Generator().manual_seed(value.numel())
    return torch.randn(value.shape, dtype=value.dtype, generator=generator)


def _without_masks(indices: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Replace each mask by the indices of its entries, one tensor for each of its dimensions."""
    numbers: list[Tensor | None] = []
    for index in indices:
        if index is not None and index.dtype in MASKS:
            numbers += _nonzero(index).unbind(1)
        else:
            numbers.append(index)
    return numbers


def _nonzero(mask: Tensor) -> Tensor:
    """Return the indices of the entries of a mask, on a GPU of all; Shape (M, dimensions)."""
    if not _virtual(mask):
        return mask.nonzero()
    return mask.new_empty((mask.numel(), mask.ndim), dtype=torch.long)


def _same_memory(one: Tensor, other: Tensor) -> bool:
    """Return True if two tensors of one shape are the same memory."""
    same = one.untyped_storage()._cdata == other.untyped_storage()._cdata
    return same and one.shape == other.shape and one.storage_offset() == other.storage_offset()


ANSWERS: Mapping[Any, Callable[..., Any]] = {
    aten._local_scalar_dense: lambda value: torch.zeros((), dtype=value.dtype).item(),
    aten.equal: _same_memory,
    aten.allclose: lambda one, other, *_, **__: one.shape == other.shape,
    aten.nonzero: _nonzero,
    aten.masked_select: lambda value, mask: value.expand_as(mask).reshape(-1).clone(),
}
"""Operations whose result depends on values, and what they return."""


@contextmanager
def alone(gpu: VirtualGPU) -> Iterator[VirtualGPU]:
    """Use a virtual GPU in a block, in place of one that is in use; keep the random state."""
    with _disable_current_modes(), torch.random.fork_rng(devices=[]), gpu:
        yield gpu


def blank_copy(value: T, kept: Sequence[Any] = ()) -> T:
    """Copy a value with all its parts on the virtual GPU, without the values of its tensors.

    Parts in ``kept`` are not copied.
    """
    with BlankCopies():
        return deepcopy(value, {id(part): part for part in kept})


class BlankCopies(TorchFunctionMode):
    """Copies of tensors by `copy.deepcopy` in the block are on the virtual GPU, without values."""

    def __torch_function__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func is Tensor.__deepcopy__:
            value, memo = args
            if id(value) not in memo:
                memo[id(value)] = _blank(value).requires_grad_(value.requires_grad)
            return memo[id(value)]
        if func is Tensor.clone:  # that of a parameter, which is copied by it
            return _blank(args[0])
        return func(*args, **(kwargs or {}))


def _blank(value: Tensor) -> Tensor:
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=DEVICE)
