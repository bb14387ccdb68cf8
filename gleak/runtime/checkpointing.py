"""Checkpoint and resume: the intermediate state of a long job, in a file beside its output.

A job's work is divided into parts, which run in the same order every time. Results of finished
parts are stored; the running part is asked for its state between two of its steps, at most every
`SECONDS` seconds. SIGTERM and SIGINT (a time limit, a preemption, Ctrl-C) end the job at the next
such moment, or immediately if no part is running, after the checkpoint has been written. A resumed
job gives output identical to that of an uninterrupted one if all of its operations are
deterministic on its device (docs/design.md names those that are not).
"""

from __future__ import annotations

import json
import logging
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar, Self, TypeVar

import numpy as np

from gleak.artifacts.atomic import discard
from gleak.artifacts.reading import content_digest
from gleak.artifacts.schema import arrays, attribute
from gleak.artifacts.store import Artifact
from gleak.core.errors import ArtifactError, DamagedError, StoppedError
from gleak.core.lazy import torch
from gleak.core.spec import Spec
from gleak.runtime.source_digest import source_digest

FILE = "checkpoint.h5"
SECONDS = 120.0
"""Minimum time between two checkpoints."""
COST = 0.05
"""Maximum share of the running time that is spent on writing."""
SEPARATOR = ":"
"""Separates a part's name, which must not contain it, from the name of a value."""
JOB = "job"
"""Part under which the cost of the job is stored."""
SIGNALS = (signal.SIGTERM, signal.SIGINT)
State = Mapping[str, Any]
"""Tensors or array-likes by name."""
Running = tuple[str, Callable[[], State]]
"""Name of a part, and the function that returns its state between two steps."""
T = TypeVar("T")
log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Checkpoint(Artifact):
    """Intermediate state of a job, stored uncompressed: it is read once, by the job that resumes.

    Args:
        origin: digest of the job's specs, inputs and code; only the same job may resume from it.
        device: "cpu" or the model of a GPU; only a job on the same may resume, as others round
            differently.
        state: state between two steps, by part of the job and name.
    """

    format: ClassVar[str] = "gleak/checkpoint"
    version: ClassVar[int] = 3

    origin: str = attribute("")
    device: str = attribute("")
    state: dict[str, np.ndarray] = arrays("...", "state", "any", finite=False, packed=False)


@dataclass(frozen=True)
class OnHost:
    """Value that becomes an array where one is needed: a tensor on the CPU without a copy."""

    value: Any

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        tensor = hasattr(self.value, "detach")
        return np.asarray(self.value.detach().cpu() if tensor else self.value)


class Journal:
    """Checkpoint file of one running job; used as a context manager.

    Args:
        path: checkpoint file; None stores nothing.
        origin: digest of the job, see `origin_of`.
        device: name of the device of the job, see `gleak.runtime.device.device_name`.
    """

    keeps_images: ClassVar[bool] = True
    """False if nobody will see the snapshots of the job's searches."""

    def __init__(self, path: Path | None = None, origin: str = "", device: str = "") -> None:
        self.path, self.origin, self.device = path, origin, device
        self._kept: dict[str, np.ndarray] = {}
        self._running: Running | None = None
        self._parts = 0
        self._asked: str | None = None
        self._within = False
        self._due = time.monotonic() + SECONDS
        self._before: dict[int, Any] = {}
        self._clocks = _clocks()

    def __enter__(self) -> Self:
        self._kept = self._read()
        self._clocks = _clocks()
        if threading.current_thread() is threading.main_thread():
            self._before = {kind: signal.signal(kind, self._asked_to_stop) for kind in SIGNALS}
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if kind is None and self.path is not None:
            discard(self.path)

    @property
    def earlier(self) -> dict[str, float]:
        """Seconds and CPU seconds of interrupted runs, up to their last checkpoint."""
        return {name: float(value) for name, value in self.stored(JOB).items()}

    def part(self, name: str = "") -> Part:
        """Return the part of this name, or the next numbered one."""
        self._parts += not name
        return Part(self, name or str(self._parts))

    def stored(self, prefix: str) -> dict[str, np.ndarray]:
        """Return the values stored under a prefix, by the rest of their names."""
        return strip_prefix(prefix, self._kept, SEPARATOR)

    def keep(self, prefix: str, state: State) -> None:
        """Replace the values stored under a prefix; the file is not written yet."""
        self._drop(prefix)
        for key, value in state.items():
            tensor = hasattr(value, "detach")
            array = value.detach().to("cpu", copy=True).numpy() if tensor else np.array(value)
            self._kept[f"{prefix}{SEPARATOR}{key}"] = array

    def follow(self, prefix: str, state: Callable[[], State]) -> None:
        """Replace the values under a prefix by those that a function returns at each writing."""
        if self._running is None or self._running[0] != prefix:
            self._drop(prefix)
        self._running = prefix, state

    def _drop(self, prefix: str) -> None:
        if self._running and self._running[0] == prefix:
            self._running = None
        for key in self.stored(prefix):
            del self._kept[f"{prefix}{SEPARATOR}{key}"]

    @contextmanager
    def stepping(self) -> Iterator[None]:
        """Delay a request to stop until the next step, or the end of the block."""
        self._within = True
        try:
            yield
        finally:
            self._within = False
        if self._asked:
            self.save()

    @property
    def due(self) -> bool:
        """True if the checkpoint should be written now."""
        return bool(self._asked) or (self.path is not None and time.monotonic() >= self._due)

    def save(self) -> None:
        """Write the checkpoint, and end the job if it was asked to stop.

        Raises:
            StoppedError: the job was asked to stop; its state is in the file.
        """
        began = time.monotonic()
        kept = self._write()
        now = time.monotonic()
        self._due = now + max(SECONDS, (now - began) / COST)
        if self._asked:
            where = f"the state is saved in {self.path}: run again to resume from there"
            raise StoppedError(
                f"stopped by {self._asked}; {where if kept else 'no checkpoint was saved'}"
            )

    def _write(self) -> bool:
        """Write the file and return True; a failure to write is logged and does not end the job."""
        if self.path is None or not (self._kept or self._running):
            return False
        running = {}
        if self._running:
            name, state = self._running
            running = {f"{name}{SEPARATOR}{key}": OnHost(v) for key, v in state().items()}
        earlier, now = self.earlier, _clocks()
        cost = {
            f"{JOB}{SEPARATOR}{name}": np.array(earlier.get(name, 0.0) + clock - self._clocks[name])
            for name, clock in now.items()
        }
        try:
            whole: dict[str, Any] = {**self._kept, **running, **cost}
            Checkpoint(origin=self.origin, device=self.device, state=whole).write(self.path)
        except (ArtifactError, MemoryError, RuntimeError) as error:
            log.warning("the checkpoint could not be written, the job continues: %s", error)
            return False
        return True

    def _read(self) -> dict[str, np.ndarray]:
        """Return the state left by an earlier run of the same job."""
        if self.path is None or not self.path.exists():
            return {}
        try:
            checkpoint = Checkpoint.read(self.path)
        except DamagedError as error:
            log.warning("the checkpoint is unusable, the job starts from the beginning: %s", error)
            return {}
        if checkpoint.origin != self.origin:
            fault = "checkpoint of another job or other code; the job starts from the beginning"
            log.warning("%s: %s", self.path, fault)
            return {}
        if checkpoint.device != self.device:
            log.warning(
                "%s: this checkpoint was made on %s, and this job runs on %s, which rounds "
                "differently; the job starts from the beginning, and its checkpoints replace this "
                "one: to resume from it, copy it now, and put it back for a run on %s",
                self.path,
                checkpoint.device,
                self.device,
                checkpoint.device,
            )
            return {}
        log.info("%s: resuming from this checkpoint", self.path)
        return checkpoint.state

    def _asked_to_stop(self, number: int, frame: FrameType | None) -> None:
        if self._asked:
            return
        self._asked = signal.Signals(number).name
        if not self._within:
            self.save()


class Part:
    """One part of a job's work, with its name in the checkpoint."""

    def __init__(self, journal: Journal, name: str) -> None:
        self.journal, self.name = journal, name

    def part(self, name: str) -> Part:
        """Return a part nested in this one."""
        return type(self)(self.journal, f"{self.name}.{name}")

    @property
    def stored(self) -> dict[str, np.ndarray]:
        """Values stored for this part; empty if it has not begun."""
        return self.journal.stored(self.name)

    def keep(self, state: State) -> None:
        """Replace the values stored for this part."""
        self.journal.keep(self.name, state)

    @contextmanager
    def stepping(self) -> Iterator[None]:
        """Run the steps of this part in a block; if it fails, drop the part's stored values."""
        try:
            with self.journal.stepping():
                yield
        except StoppedError:
            raise
        except BaseException:
            self.keep({})
            raise

    def steps(self, unfinished: Callable[[], bool], state: Callable[[], State]) -> Iterator[None]:
        """Iterate over steps in a block of `stepping`, and call `step` before each."""
        while unfinished():
            self.step(state)
            yield

    def step(self, state: Callable[[], State]) -> None:
        """Write the checkpoint with the state if it is due; to be called between two steps.

        The state is that of the end of the steps, too, until other values are kept for this part.

        Raises:
            StoppedError: the job was asked to stop; see `Journal.save`.
        """
        self.journal.follow(self.name, state)
        self.save_if_due()

    def save_if_due(self) -> None:
        """Write the checkpoint if it is due; to be called after work whose result is stored."""
        if self.journal.due:
            self.journal.save()


def strip_prefix(prefix: str, state: Mapping[str, T], separator: str = ".") -> dict[str, T]:
    """Return the entries whose names begin with ``prefix.``, by the rest of their names."""
    long = f"{prefix}{separator}"
    return {key.removeprefix(long): value for key, value in state.items() if key.startswith(long)}


def origin_of(stage: str, specs: Iterable[Spec], files: Iterable[Path], *facts: Any) -> str:
    """Compute a digest of everything that determines the output of a job, but for its device.

    Args:
        stage: module that does the work; its code is included, and that of the specs.
        specs: specs of the job.
        files: input artifacts.
        *facts: further inputs that JSON can represent (a seed, say).
    """
    parts = [part for spec in specs for part in spec.components()]
    code = source_digest(stage, *sorted({name for part in parts for name in part.modules}))
    inputs = [[part.resolved() for part in parts], [content_digest(file) for file in files]]
    whole = [*inputs, facts, code, version("torch")]
    return blake2b(json.dumps(whole).encode(), digest_size=8).hexdigest()


def _clocks() -> dict[str, float]:
    return {"seconds": time.perf_counter(), "cpu_seconds": time.process_time()}


def optimizer_state(optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """Return the tensors of an optimizer's state, named by parameter number and state name."""
    return {
        f"{index}{SEPARATOR}{name}": value
        for index, values in optimizer.state_dict()["state"].items()
        for name, value in values.items()
    }


def resume_optimizer(optimizer: torch.optim.Optimizer, state: Mapping[str, torch.Tensor]) -> None:
    """Load a state returned by `optimizer_state` into an optimizer."""
    states: dict[int, dict[str, torch.Tensor]] = {}
    for name, value in state.items():
        index, _, key = name.partition(SEPARATOR)
        states.setdefault(int(index), {})[key] = value
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": states, "param_groups": groups})
