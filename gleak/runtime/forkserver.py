"""Start Python scripts by forking a process that has already imported their modules.

Importing torch takes longer than the work of most small jobs. A `ForkServer` starts one process,
the *server* (this module, executed), which imports the modules that a script names and forks; the
child executes the script as ``python SCRIPT`` would. The server only imports modules: it opens no
artifact, starts no thread and does not initialise CUDA. Jobs thus share imported code and nothing
else. Linux only, since torch does not support forking elsewhere.
"""

from __future__ import annotations

import ast
import atexit
import ctypes
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import NamedTuple, NoReturn

SUPPORTED = sys.platform == "linux" and hasattr(os, "pidfd_open")
SIGNALS = {signal.SIGHUP, signal.SIGINT, signal.SIGTERM}
"""Signals that may be sent to all processes of a run; only the jobs react, the server waits."""
PACKAGES = {
    *("gleak", "snakemake", "numpy", "h5py", "torch", "torchvision", "lpips", "tqdm", "PIL"),
    *("pandas", "tabulate", "scipy", "skimage", "sklearn", "matplotlib", "seaborn"),
}
"""Packages whose modules the server imports once a job has imported them."""
MESSAGE_BYTES = 2**18
PR_SET_PDEATHSIG = 1
"""Option of prctl(2): the signal that a process receives when its parent ends."""


class LostJobError(Exception):
    """The server ended before a job of its own, or could not fork."""


def begin_at_once(pid: int, finish: Callable[[], int]) -> int:
    """Let a job begin and return its exit status; see `ForkServer.run`."""
    return finish()


class ForkServer:
    """Starts scripts through a server, which begins with the first one and ends with this process.

    Scripts may be started from several threads. If this process is killed, the server ends and the
    jobs are stopped by SIGTERM: nobody waits for them, and another run may begin the same ones. If
    the server ends early, the next script starts another one.

    Args:
        environment: environment variables of the server, for libraries that read them when they are
            imported (``OMP_NUM_THREADS``, for example).
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = dict(environment)
        self._lock = Lock()
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Process ID of the server; None before the first script."""
        return self._process.pid if self._process else None

    def run(
        self,
        script: str,
        environment: Mapping[str, str],
        supervise: Callable[[int, Callable[[], int]], int] = begin_at_once,
    ) -> int:
        """Execute a script in a process of its own, in the current folder.

        Args:
            script: path of the script.
            environment: environment variables of its process.
            supervise: called with the ID of the process, which has not begun, and with a function
                that lets it begin and returns its exit status; returns that status.

        Returns:
            The exit status; negative if a signal ended the process.

        Raises:
            LostJobError: the server ended before the script, which was stopped as well.
            OSError: the script cannot be handed to a server.
        """
        request = {"script": script, "environment": dict(environment), "folder": str(Path.cwd())}
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours:
            with theirs:
                self._request(json.dumps(request).encode(), theirs)
            return supervise(_receive(ours), lambda: _finish(ours))

    def close(self) -> None:
        """End the server, if there is one, and stop the jobs that it started."""
        if self._control and self._process:
            self._control.close()
            self._process.wait()
        self._control = self._process = None

    def _request(self, message: bytes, connection: socket.socket) -> None:
        with self._lock:
            if self._process and self._process.poll() is not None:
                self.close()
            if self._control is None:
                self._control = self._start()
            socket.send_fds(self._control, [message], [connection.fileno()])

    def _start(self) -> socket.socket:
        """Start a server, which ends when the returned socket for requests is closed."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", __name__, str(theirs.fileno())],
                env=self.environment,
                pass_fds=[theirs.fileno()],
            )
        return ours


def _receive(connection: socket.socket) -> int:
    """Return the number sent by the server or by a job.

    Raises:
        LostJobError: all other ends of the connection are closed.
    """
    with suppress(ConnectionError):
        if message := connection.recv(MESSAGE_BYTES):
            return int(message)
    raise LostJobError("the process from which jobs are forked has ended, and this job with it")


def _finish(connection: socket.socket) -> int:
    """Let a job begin, and return its exit status."""
    with suppress(ConnectionError):
        connection.send(b"begin")
    return _receive(connection)


class Job(NamedTuple):
    """A script, how to execute it, and the connection on which its exit status is awaited."""

    script: str
    environment: dict[str, str]
    folder: str
    connection: socket.socket

    def prepare(self, server: int) -> None:
        """Make this process one that was started for the script, and wait until it may begin.

        If the server ends, the process receives SIGTERM, as when a job is cancelled.

        Args:
            server: process ID of the server.
        """
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        self.connection.send(b"%d" % os.getpid())
        if not self.connection.recv(MESSAGE_BYTES) or os.getppid() != server:
            raise SystemExit(1)
        os.chdir(self.folder)
        os.environ.clear()
        os.environ.update(self.environment)
        sys.argv = [self.script]
        sys.path.insert(0, str(Path(self.script).parent))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


def serve(control: socket.socket) -> None:
    """Fork for each request until the control socket is closed.

    Jobs that run then are stopped as this process ends (see `Job.prepare`). In a job's process this
    function ends with the process.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    reading, reporting = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with selectors.DefaultSelector() as selector:
        selector.register(control, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.data:
                    _reap(selector, key)
                    _import(_reported(reading))
                elif job := _next_job(control):
                    _fork(job, selector, reporting)
                else:
                    return


def _next_job(control: socket.socket) -> Job | None:
    """Read a request and import the modules of its script; return None if there are no more."""
    message, descriptors, *_ = socket.recv_fds(control, MESSAGE_BYTES, 1)
    if not message:
        return None
    job = Job(**json.loads(message), connection=socket.socket(fileno=descriptors[0]))
    _import(imported_by(job.script))
    return job


def imported_by(script: str) -> list[str]:
    """Return the modules that a script imports at its top level; none if it cannot be parsed."""
    names: list[str] = []
    try:
        statements = ast.parse(Path(script).read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return names
    for node in statements:
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.append(node.module)
    return names


def _import(names: Iterable[str]) -> None:
    """Import modules; those that cannot be imported are left to the jobs, which report it."""
    for name in names:
        with suppress(Exception):
            import_module(name)


def _reported(reading: socket.socket) -> Iterator[str]:
    """Yield the modules that jobs have reported since the last call."""
    with suppress(BlockingIOError):
        while True:
            yield from json.loads(reading.recv(MESSAGE_BYTES, socket.MSG_DONTWAIT))


def _fork(job: Job, selector: selectors.BaseSelector, reporting: socket.socket) -> None:
    """Fork for a job; if that is impossible, close its connection."""
    server = os.getpid()
    try:
        pid = os.fork()
    except OSError:
        job.connection.close()
        return
    if pid:
        selector.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, job.connection))
    else:
        _close_all(selector)
        job.prepare(server)
        _execute(job.script, reporting)


def _reap(selector: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
    """Report the exit status of a process that has ended."""
    pid, connection = key.data
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with suppress(ConnectionError):
        connection.send(b"%d" % status)
    selector.unregister(key.fileobj)
    os.close(key.fd)
    connection.close()


def _close_all(selector: selectors.BaseSelector) -> None:
    """Close in a child what belongs to the server and to other jobs."""
    for key in selector.get_map().values():
        os.close(key.fd)
        if key.data:
            key.data[1].close()


def _execute(script: str, reporting: socket.socket) -> NoReturn:
    """Execute a script as the main module, report what it imported, and end the process.

    The interpreter is not finalised after a script that succeeded: this would write to most pages
    that the process shares with the server, and takes up to half a second.
    """
    before = set(sys.modules)
    try:
        runpy.run_path(script, run_name="__main__")
    finally:
        new = (name for name in sys.modules if name not in before)
        known = [name for name in new if name.partition(".")[0] in PACKAGES]
        with suppress(OSError):
            reporting.send(json.dumps(known).encode())
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
