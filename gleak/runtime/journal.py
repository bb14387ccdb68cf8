"""What a long job has come to, in a side file: broken off, it goes on where it stood.

A job's work is in parts, which it does in the same order whenever it runs. What a finished part
came to is kept; the part under way is asked for its state now and then, between two of its steps,
and the file is written. SIGTERM and SIGINT (a time limit, a preemption, Ctrl-C) end the job at the
next such moment, or at once where no part is under way, after the file has been written.
"""

from __future__ import annotations

import json
import logging
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import Any, Self, TypeVar

import numpy as np

from gleak.artifacts.atomic import discard
from gleak.artifacts.checkpoint import Checkpoint
from gleak.artifacts.reading import content_digest
from gleak.core.errors import ArtifactError, DamagedError, StoppedError
from gleak.core.spec import Spec
from gleak.runtime.digest import source_digest

FILE = "checkpoint.h5"
SECONDS = 120.0
"""Between one writing and the next, at least."""
COST = 0.05
"""Share of the time that writing takes, at most."""
SEPARATOR = ":"
"""Between a part's name, in which it does not stand, and that of a value."""
JOB = "job"
"""The part under which the journal keeps what the job has cost."""
SIGNALS = (signal.SIGTERM, signal.SIGINT)
State = Mapping[str, Any]
"""By name, tensors or what numpy makes arrays of."""
T = TypeVar("T")
log = logging.getLogger(__name__)


class Journal:
    """The side file of one job, for as long as the job runs; used as a context manager.

    Args:
        path: of the file; None keeps nothing.
        origin: a digest of all that the job follows from, see `origin_of`.
    """

    def __init__(self, path: Path | None = None, origin: str = "") -> None:
        self.path, self.origin = path, origin
        self._kept: dict[str, np.ndarray] = {}
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
            self._before = {each: signal.signal(each, self._asked_to_stop) for each in SIGNALS}
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if kind is None and self.path is not None:
            discard(self.path)

    @property
    def earlier(self) -> dict[str, float]:
        """Seconds and CPU seconds of the runs that were broken off, up to their last writing."""
        return {name: float(value) for name, value in self.found(JOB).items()}

    def part(self, name: str = "") -> Part:
        """The next part of the work, or of that name."""
        self._parts += not name
        return Part(self, name or str(self._parts))

    def found(self, prefix: str) -> dict[str, np.ndarray]:
        """What is kept under a prefix, by the rest of its name."""
        long = f"{prefix}{SEPARATOR}"
        return {
            key.removeprefix(long): value
            for key, value in self._kept.items()
            if key.startswith(long)
        }

    def keep(self, prefix: str, state: State) -> None:
        """Put a state in the place of what is kept under a prefix; not yet written."""
        for key in self.found(prefix):
            del self._kept[f"{prefix}{SEPARATOR}{key}"]
        for key, value in state.items():
            self._kept[f"{prefix}{SEPARATOR}{key}"] = _array(value)

    @contextmanager
    def stepping(self) -> Iterator[None]:
        """A block in which a part steps: a request to stop waits for the next step, or its end."""
        self._within = True
        try:
            yield
        finally:
            self._within = False
        if self._asked:
            self.save()

    @property
    def due(self) -> bool:
        """Whether the file is to be written now."""
        return bool(self._asked) or (self.path is not None and time.monotonic() >= self._due)

    def save(self) -> None:
        """Write what is kept, and end the job if that was asked for.

        Raises:
            StoppedError: the job was asked to stop; what it has come to is in the file.
        """
        began = time.monotonic()
        kept = self._write()
        now = time.monotonic()
        self._due = now + max(SECONDS, (now - began) / COST)
        if self._asked:
            where = f"what it had come to is in {self.path}: run again, and it goes on from there"
            raise StoppedError(f"stopped by {self._asked}; {where if kept else 'nothing was kept'}")

    def _write(self) -> bool:
        """Whether the file could be written; a job does not fail because it could not."""
        if self.path is None or not self._kept:
            return False
        cost = {f"{JOB}{SEPARATOR}{name}": np.array(value) for name, value in self._cost().items()}
        try:
            Checkpoint(origin=self.origin, state={**self._kept, **cost}).write(self.path)
        except (ArtifactError, MemoryError) as error:
            log.warning("no checkpoint, the job goes on without one: %s", error)
            return False
        return True

    def _cost(self) -> dict[str, float]:
        """What the job has cost until now, with the runs that were broken off."""
        earlier, now = self.earlier, _clocks()
        return {name: earlier.get(name, 0.0) + now[name] - self._clocks[name] for name in now}

    def _read(self) -> dict[str, np.ndarray]:
        """What an earlier run of this very job has left."""
        if self.path is None or not self.path.exists():
            return {}
        try:
            found = Checkpoint.read(self.path)
        except DamagedError as error:
            log.warning("the job begins anew: %s", error)
            return {}
        if found.origin != self.origin:
            log.warning("%s: of other work or other code; the job begins anew", self.path)
            return {}
        log.info("%s: the job goes on from there", self.path)
        return found.state

    def _asked_to_stop(self, number: int, frame: FrameType | None) -> None:
        if self._asked:
            return
        self._asked = signal.Signals(number).name
        if not self._within:
            self.save()


class Part:
    """One part of a job's work.

    Args:
        journal: of the job.
        name: of the part, in the journal.
    """

    def __init__(self, journal: Journal, name: str) -> None:
        self.journal, self.name = journal, name

    def part(self, name: str) -> Part:
        """A part of this part."""
        return Part(self.journal, f"{self.name}.{name}")

    @property
    def found(self) -> dict[str, np.ndarray]:
        """What is kept of it; empty if it has not been begun."""
        return self.journal.found(self.name)

    def keep(self, state: State) -> None:
        """What it came to, or has agreed on."""
        self.journal.keep(self.name, state)

    @contextmanager
    def stepping(self) -> Iterator[None]:
        """The block that takes its steps; what was begun is forgotten if the block fails."""
        try:
            with self.journal.stepping():
                yield
        except StoppedError:
            raise
        except BaseException:
            self.keep({})
            raise

    def step(self, state: Callable[[], State]) -> None:
        """Between two steps: if it is time, keep the state and write the file.

        Raises:
            StoppedError: see `Journal.save`.
        """
        if self.journal.due:
            self.keep(state())
            self.journal.save()

    def save_if_due(self) -> None:
        """Between two pieces of work that are kept when they are done: write them if it is time."""
        if self.journal.due:
            self.journal.save()


def below(prefix: str, state: Mapping[str, T]) -> dict[str, T]:
    """What stands under ``prefix.`` in a state, by the rest of its name."""
    long = f"{prefix}."
    return {key.removeprefix(long): value for key, value in state.items() if key.startswith(long)}


def origin_of(stage: str, specs: Iterable[Spec], files: Iterable[Path], *facts: Any) -> str:
    """A digest of all that the outcome of a job follows from.

    Args:
        stage: the module that does the work; its code counts, and that of the specs.
        specs: what the work is.
        files: the artifacts it reads.
        *facts: what else there is (a seed, say), as JSON takes it.
    """
    parts = [part for spec in specs for part in spec.components()]
    code = source_digest(stage, *sorted({name for part in parts for name in part.modules}))
    resolved = [part.resolved() for part in parts]
    contents = [content_digest(file) for file in files]
    whole = [resolved, contents, facts, code, version("torch")]
    return blake2b(json.dumps(whole).encode(), digest_size=8).hexdigest()


def _clocks() -> dict[str, float]:
    return {"seconds": time.perf_counter(), "cpu_seconds": time.process_time()}


def _array(value: Any) -> np.ndarray:
    """A copy, which later steps leave as it is."""
    return np.array(value.detach().cpu().numpy() if hasattr(value, "detach") else value)
