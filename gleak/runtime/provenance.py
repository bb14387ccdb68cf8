"""``provenance.json``: time, host, versions and cost of making the artifact in a folder.

Everything that differs between two runs of the same work is recorded here and not in artifacts.
"""

from __future__ import annotations

import json
import os
import platform
import re
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from gleak.artifacts.atomic import atomic
from gleak.core.errors import DamagedError

FILE = "provenance.json"
PACKAGES = ("torch", "numpy", "h5py", "gleak")
MEGABYTE = 1e6
CPU = "cpu"
"""Entry ``device`` of a job that used no GPU; that of others is the name of the GPU."""


@contextmanager
def clocked() -> Iterator[dict[str, float]]:
    """Yield a dictionary, which at the end of the block has the time that it took.

    These are ``seconds`` of wall time until the GPU, if one was used, has finished its work, and
    ``cpu_seconds`` of all threads of this process.
    """
    times: dict[str, float] = {}
    wall, processor = time.perf_counter(), time.process_time()
    yield times
    if cuda := _gpus():
        cuda.synchronize()
    times["seconds"] = time.perf_counter() - wall
    times["cpu_seconds"] = time.process_time() - processor


@contextmanager
def record(folder: Path | str, **facts: Any) -> Iterator[dict[str, Any]]:
    """Measure the block and, if it succeeds, write ``provenance.json`` into ``folder``.

    Peak memory is the largest resident set of the process since it started; peak GPU memory, if a
    GPU was used, the largest amount that torch allocated on one GPU during the block.

    Args:
        folder: folder of the artifact.
        **facts: further entries, which replace measured ones of the same name.

    Yields:
        A dictionary to which the block may add further facts (JSON values). Its ``earlier`` entry,
        the cost of interrupted runs, is added to the measured cost.

    Raises:
        ArtifactError: the file cannot be written.
    """
    if cuda := _gpus():
        for number in range(cuda.device_count()):
            cuda.reset_peak_memory_stats(number)
    with clocked() as times:
        yield facts
    for name, spent in facts.pop("earlier", {}).items():
        times[name] += spent
    torch = sys.modules.get("torch")
    measured = {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "host": platform.node(),
        "commit": _commit(),
        "python": platform.python_version(),
        **{package: _version(package) for package in PACKAGES},
        "device": CPU,
        "threads": torch.get_num_threads() if torch else os.cpu_count() or 1,
        **{name: round(value, 3) for name, value in times.items()},
        "peak_memory_mb": _peak_memory(),
        **_gpu_facts(),
    }
    with atomic(Path(folder) / FILE) as temporary:
        facts = {**measured, **facts}
        temporary.write_text(json.dumps(facts, indent=2, default=_plain) + "\n")


def load(folder: Path | str) -> dict[str, Any]:
    """Return what `record` wrote into a folder; a file that is missing or no JSON is damaged."""
    path = Path(folder) / FILE
    try:
        return dict(json.loads(path.read_text()))
    except (OSError, ValueError) as error:
        raise DamagedError(path, f"cannot be read ({error})") from None


def _plain(value: Any) -> Any:
    """Convert a number of numpy or torch, a spec or a path to a JSON value."""
    return value.item() if hasattr(value, "item") else str(value)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def changed_since(commit: str) -> bool:
    """Return True unless gleak's source is that of a commit, for all that is known."""
    source = Path(__file__).parents[1]
    return _git("-C", str(source), "diff", "--quiet", commit, "--", str(source)) is None


def _commit() -> str | None:
    """Return the commit of gleak's source, None outside a git repository."""
    return _git("-C", str(Path(__file__).parent), "rev-parse", "HEAD")


def _git(*words: str) -> str | None:
    """Return what git prints, None if it fails."""
    command = ["git", *words]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip()


def _peak_memory() -> float:
    """Return the peak memory of this process in MB.

    `resource` includes the process it was forked from, so it is only a fallback.
    """
    status = Path("/proc/self/status")
    if status.is_file() and (peak := re.search(r"VmHWM:\s+(\d+) kB", status.read_text())):
        return round(int(peak[1]) * 1024 / MEGABYTE, 1)
    unit = 1 if sys.platform == "darwin" else 1024
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / MEGABYTE, 1)


def _gpus() -> Any:
    """Return `torch.cuda` if a GPU has been used, else None; torch is not imported."""
    torch = sys.modules.get("torch")
    return torch.cuda if torch and torch.cuda.is_initialized() else None


def _gpu_facts() -> dict[str, Any]:
    if (cuda := _gpus()) is None:
        return {}
    busiest = max(range(cuda.device_count()), key=cuda.max_memory_allocated)
    peak = cuda.max_memory_allocated(busiest)
    if not peak:
        return {}  # started, by a query of a user's module, but not used
    name = cuda.get_device_name(busiest)
    return {"device": name, "peak_gpu_memory_mb": round(peak / MEGABYTE, 1)}
