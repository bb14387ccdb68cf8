"""Log, device, CPU threads and provenance around the work of a stage."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gleak.runtime.device import prepare_cpu
from gleak.runtime.gpu_slots import assigned
from gleak.runtime.logs import log_to
from gleak.runtime.provenance import record


@contextmanager
def job(snakemake: Any, folder: Path, **facts: Any) -> Iterator[dict[str, Any]]:
    """Log a job, set its device and CPU threads, and record its cost in ``folder``.

    Args:
        snakemake: what Snakemake gives to a script; ``config["device"]`` becomes the job's.
        folder: folder of the output, which gets ``provenance.json``.
        **facts: further entries of ``provenance.json``.

    Yields:
        The entries, to which the block may add; see `record`.

    Raises:
        SystemExit: with code 1, in place of a `GleakError` or a `MemoryError`.
    """
    threads = snakemake.threads
    with (
        log_to(snakemake.log[0], snakemake.config["results_dir"]),
        assigned(snakemake.resources, snakemake.config["device"]) as device,
        record(folder, threads=threads, **facts) as entries,
    ):
        prepare_cpu(threads)
        snakemake.config["device"] = device
        yield entries
