"""Run Python scripts in processes forked from one that has imported their modules.

Importing torch takes longer than the work of most small jobs. `multiprocessing`'s fork server
imports modules once, opens no artifact, starts no thread and does not initialise CUDA; each script
runs in a process forked from it. Linux only, since torch does not support forking elsewhere.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from multiprocessing import connection, get_context, parent_process
from pathlib import Path
from threading import Lock, Thread

SUPPORTED = sys.platform == "linux" and hasattr(os, "pidfd_open")
LOST = 255
"""Exit status of a script whose fork server ended before it."""
PR_SET_PDEATHSIG = 1
"""Option of prctl(2): the signal that a process receives when its parent ends."""
STARTING = Lock()
"""Held while a process is started or its exit status is read: `multiprocessing` polls all
processes when it starts one, and the status of each can be read only once."""


def run_script(
    script: str,
    environment: Mapping[str, str],
    modules: Sequence[str],
    measure: Callable[[int], AbstractContextManager[object]] = lambda pid: nullcontext(),
) -> int:
    """Run a script, as ``python SCRIPT`` would, in a forked process and in the current folder.

    Scripts may be run from several threads. If this process or the fork server ends early, they
    receive SIGTERM.

    Args:
        script: path of the script.
        environment: environment variables of its process.
        modules: what the fork server imports when it starts, with the first script.
        measure: called with the process ID; returns a context that is left when the script ends.

    Returns:
        The exit status; negative if a signal ended the process, `LOST` if the server ended.
    """
    context = get_context("forkserver")
    process = context.Process(target=_execute, args=(script, dict(environment), str(Path.cwd())))
    with STARTING:
        context.set_forkserver_preload(list(modules))
        process.start()
    assert process.pid is not None
    with measure(process.pid), suppress(ProcessLookupError):
        ended = os.pidfd_open(process.pid)
        connection.wait([ended])
        os.close(ended)
    with STARTING:
        process.join()
    return process.exitcode or 0


def _execute(script: str, environment: dict[str, str], folder: str) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    Thread(target=_end_with_parent, daemon=True).start()
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv = [script]
    sys.path.insert(0, str(Path(script).parent))
    runpy.run_path(script, run_name="__main__")


def _end_with_parent() -> None:
    """Send this process SIGTERM when the process ends that awaits it."""
    parent = parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os.kill(os.getpid(), signal.SIGTERM)
