"""Scripts in forked processes behave as scripts started by ``python SCRIPT``."""

from __future__ import annotations

import json
import multiprocessing.forkserver
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from textwrap import dedent

import pytest

from gleak.runtime.forkserver import LOST, SUPPORTED, run_script

pytestmark = pytest.mark.skipif(not SUPPORTED, reason="Linux only")

SOON = 60.0
MODULES = ("torch", "no_such_module")
Script = Callable[[str], str]


@pytest.fixture(autouse=True)
def _end_server() -> Iterator[None]:
    """The server has the standard output of the test that starts it."""
    yield
    multiprocessing.forkserver._forkserver._stop()


def run(path: str, modules: Sequence[str] = ()) -> int:
    return run_script(path, os.environ, modules)


def server() -> int:
    """Process ID of the fork server."""
    return multiprocessing.forkserver._forkserver._forkserver_pid


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """Write a script of this source, and give its path."""

    def write(source: str) -> str:
        path = tmp_path / f"script{len(list(tmp_path.glob('script*.py')))}.py"
        path.write_text(dedent(source))
        return str(path)

    return write


def wait_for(what: Callable[[], object]) -> None:
    end = time.monotonic() + SOON
    while not what():
        assert time.monotonic() < end
        time.sleep(0.01)


def gone(pid: int) -> bool:
    """Whether a process has ended, reaped or not."""
    try:
        return ") Z " in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.mark.parametrize(
    "source",
    [
        "print(__name__, __file__, __import__('sys').argv)",
        "import os; print(os.getcwd(), os.environ['ONE'], os.getpgrp(), os.getsid(0))",
        "import sys; print(sys.path[0])",
        "import signal; print([signal.getsignal(each) for each in (2, 15, 17)])",
        "raise SystemExit",
        "raise SystemExit(3)",
        "raise SystemExit('why')",
        "1 / 0",
        "1 +",
        "import no_such_module",
        "import os; os.kill(os.getpid(), 9)",
        "import os; os.kill(os.getpid(), 15)",
        "import os; os.abort()",
    ],
)
def test_a_script_does_what_it_does_alone(
    source: str, script: Script, capfd: pytest.CaptureFixture[str]
) -> None:
    path, environment = script(source), {**os.environ, "ONE": "1"}
    alone = subprocess.run([sys.executable, path], check=False, env=environment).returncode
    out, error = capfd.readouterr()
    assert run_script(path, environment, ()) == alone
    forked_out, forked_error = capfd.readouterr()
    assert forked_out == out
    assert forked_error.splitlines()[-1:] == error.splitlines()[-1:]


def test_what_a_job_changes_is_not_seen_by_the_next(script: Script, tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    tell = f"""
        import json, os, torch
        with open({str(state)!r}, "w") as file:
            json.dump([
                torch.get_num_threads(), torch.initial_seed(), str(torch.get_default_dtype()),
                os.getcwd(), dict(os.environ), os.umask(0o22), hasattr(json, "mark"),
            ], file)
    """
    change = """
        import json, os, torch
        torch.set_num_threads(3)
        torch.manual_seed(5)
        torch.set_default_dtype(torch.float64)
        torch.ones(300, 300) @ torch.ones(300, 300)
        os.chdir("/")
        os.environ["MARK"] = "1"
        os.umask(0)
        json.mark = 1
    """
    assert run(script(tell), MODULES) == 0
    before = json.loads(state.read_text())
    assert run(script(change), MODULES) == 0
    assert run(script(tell), MODULES) == 0
    assert json.loads(state.read_text()) == before


def test_modules_are_imported_by_the_server(script: Script) -> None:
    source = "import sys; names = set(sys.modules); raise SystemExit('torch._C' not in names)"
    assert run(script(source), MODULES) == 0
    assert len(list(Path(f"/proc/{server()}/task").iterdir())) == 1, "the server has one thread"


def test_scripts_run_side_by_side(script: Script, tmp_path: Path) -> None:
    """Each waits for the files of all others; their exit statuses are not confused."""
    source = """
        import pathlib, time
        folder = pathlib.Path({folder!r})
        (folder / "{number}.begun").touch()
        while len(list(folder.glob("*.begun"))) < 5:
            time.sleep(0.01)
        raise SystemExit({number})
    """
    paths = [script(source.format(folder=str(tmp_path), number=number)) for number in range(5)]
    with ThreadPoolExecutor(5) as pool:
        assert list(pool.map(run, paths)) == [0, 1, 2, 3, 4]


WAITING = """
    import os, signal, sys, time
    def stop(*_):
        open({folder!r} + "/stopped", "w").close()
        sys.exit(1)
    signal.signal(signal.SIGTERM, stop)
    with open({folder!r} + "/begun.part", "w") as file:
        file.write(str(os.getpid()))
    os.rename({folder!r} + "/begun.part", {folder!r} + "/begun")
    time.sleep(600)
"""


def test_jobs_of_a_server_that_is_killed_are_stopped_and_the_next_has_another(
    script: Script, tmp_path: Path
) -> None:
    path = script(WAITING.format(folder=str(tmp_path)))
    with ThreadPoolExecutor(1) as pool:
        lost = pool.submit(run, path)
        wait_for((tmp_path / "begun").exists)
        os.kill(server(), signal.SIGKILL)
        assert lost.result(SOON) == LOST
    assert (tmp_path / "stopped").exists(), "told only after the job had ended"
    assert run(script("raise SystemExit(7)")) == 7


def test_jobs_of_a_caller_that_is_killed_are_stopped_and_the_server_ends(
    script: Script, tmp_path: Path
) -> None:
    path = script(WAITING.format(folder=str(tmp_path)))
    caller = f"""
        import os
        from gleak.runtime.forkserver import run_script
        def measure(pid):
            from multiprocessing.forkserver import _forkserver
            open({str(tmp_path / "server")!r}, "w").write(str(_forkserver._forkserver_pid))
            return open(os.devnull)
        if __name__ == "__main__":
            run_script({path!r}, os.environ, (), measure)
    """
    with subprocess.Popen([sys.executable, script(caller)]) as process:
        wait_for((tmp_path / "begun").exists)
        process.kill()
    pid, job = (int((tmp_path / name).read_text()) for name in ("server", "begun"))
    wait_for(lambda: gone(job) and gone(pid))
    assert (tmp_path / "stopped").exists()
