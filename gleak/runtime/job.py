"""Log, CPU threads and provenance around the work of a stage."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gleak.runtime.device import prepare_cpu
from gleak.runtime.logs import log_to
from gleak.runtime.provenance import record


@contextmanager
def job(snakemake: Any, folder: Path, **facts: Any) -> Iterator[dict[str, Any]]:
    """Log a job, set its CPU threads, and record its cost in ``folder``.

    Args:
        snakemake: what Snakemake gives to a script.
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
        record(folder, threads=threads, **facts) as entries,
    ):
        prepare_cpu(threads)
        yield entries
