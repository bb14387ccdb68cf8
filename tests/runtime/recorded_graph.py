"""Stand-in for a CUDA graph on the CPU: the operations of a function, repeated on the same memory.

As on a GPU, capture does not run the function, replay starts the recorded operations with the
arguments and the memory they had, whatever Python would do, and a value read by the program
cannot be captured. Unlike there, a failed capture leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
READING = {aten._local_scalar_dense, aten.nonzero, aten.equal, aten.masked_select}


class RecordedGraphs:
    """Captures and watches functions, see `gleak.runtime.gpu_loop.Graphs`.

    Attributes:
        events: "capture" and "replay", in their order.
    """

    def __init__(self) -> None:
        self.events: list[str] = []

    def watch(self, function: Callable[[], None]) -> str:
        with Watcher() as watcher:
            function()
        return watcher.seen

    def capture(self, function: Callable[[], None]) -> Callable[[], None]:
        recorder = Recorder()
        try:
            with recorder:
                function()
        finally:
            recorder.undo()
        self.events.append("capture")

        def replay() -> None:
            self.events.append("replay")
            recorder.replay()

        return replay


class Watcher(TorchDispatchMode):
    """Notes the first operation whose result the program waits for."""

    seen = ""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        if _waits(func, args):
            self.seen = self.seen or f"it waits for {func}"
        return func(*args, **(kwargs or {}))


class Recorder(TorchDispatchMode):
    """Records operations with their results, and what tensors from before held."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Sequence[Any], dict[str, Any], Any]] = []
        self.before: dict[int, tuple[Tensor, Tensor]] = {}
        self.made: set[int] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        options = dict(kwargs or {})
        if _waits(func, args):
            raise RuntimeError(f"operation not permitted when stream is capturing: {func}")
        if func._schema.is_mutable:
            self._remember(args, options)
        result = func(*args, **options)
        if not func._schema.is_mutable and not func.is_view:
            self.made |= {one.untyped_storage()._cdata for one in _tensors([result])}
        self.calls.append((func, args, options, result))
        return result

    def _remember(self, args: Sequence[Any], options: dict[str, Any]) -> None:
        for one in _tensors([*args, *options.values()]):
            key = one.untyped_storage()._cdata
            if key not in self.made and key not in self.before:
                whole = torch.empty(0, dtype=torch.uint8).set_(one.untyped_storage())
                self.before[key] = (whole, whole.clone())

    def undo(self) -> None:
        for whole, held in self.before.values():
            whole.copy_(held)

    def replay(self) -> None:
        with torch.no_grad():
            for func, args, options, result in self.calls:
                again = func(*args, **options)
                if not func._schema.is_mutable and not func.is_view:
                    pairs = zip(_tensors([result]), _tensors([again]), strict=True)
                    for kept, new in pairs:
                        kept.copy_(new)


def _waits(func: Any, args: Sequence[Any]) -> bool:
    if func.overloadpacket in (aten.index, aten.index_put, aten.index_put_):
        return any(one is not None and one.dtype is torch.bool for one in args[1])
    return func.overloadpacket in READING


def _tensors(values: Sequence[Any]) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)
