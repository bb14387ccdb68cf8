"""Scripts forked by a server behave as scripts started by ``python SCRIPT``."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from textwrap import dedent

import pytest

from gleak.runtime.forkserver import SUPPORTED, ForkServer, LostJobError, imported_by

pytestmark = pytest.mark.skipif(not SUPPORTED, reason="Linux only")

SOON = 60.0
Script = Callable[[str], str]


@pytest.fixture
def server() -> Iterator[ForkServer]:
    server = ForkServer(os.environ)
    yield server
    server.close()


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
        "import os; print(os.getcwd(), sorted(os.environ.items()))",
        "import sys; print(sys.path[0])",
        "import signal; print(signal.pthread_sigmask(signal.SIG_BLOCK, []))",
        "import signal; print([signal.getsignal(each) for each in signal.valid_signals()])",
        "import os, resource; print(os.nice(0), resource.getrlimit(resource.RLIMIT_NOFILE))",
        "import os; print(os.getpgrp(), os.getsid(0))",
        "import atexit; atexit.register(print, 'last')",
        "raise SystemExit",
        "raise SystemExit(3)",
        "raise SystemExit('why')",
        "1 / 0",
        "1 +",
        "import no_such_module",
        "raise KeyboardInterrupt",
        "import os; os.kill(os.getpid(), 9)",
        "import os; os.kill(os.getpid(), 15)",
        "import os; os.kill(os.getpid(), 2)",
        "import os; os.abort()",
    ],
)
def test_a_script_does_what_it_does_alone(
    source: str, server: ForkServer, script: Script, capfd: pytest.CaptureFixture[str]
) -> None:
    path, environment = script(source), {**os.environ, "ONE": "1"}
    alone = subprocess.run([sys.executable, path], check=False, env=environment).returncode
    out, error = capfd.readouterr()
    assert server.run(path, environment) == alone
    forked_out, forked_error = capfd.readouterr()
    assert forked_out == out
    assert forked_error.splitlines()[-1:] == error.splitlines()[-1:]


def test_what_a_job_changes_is_not_seen_by_the_next(
    server: ForkServer, script: Script, tmp_path: Path
) -> None:
    state = tmp_path / "state.json"
    tell = f"""
        import json, os, threading, torch
        with open({str(state)!r}, "w") as file:
            json.dump([
                torch.get_num_threads(), torch.initial_seed(), str(torch.get_default_dtype()),
                os.getcwd(), dict(os.environ), os.umask(0o22), hasattr(json, "mark"),
                threading.active_count(), len(os.listdir("/proc/self/fd")),
            ], file)
    """
    change = """
        import json, os, threading, time, torch
        torch.set_num_threads(3)
        torch.manual_seed(5)
        torch.set_default_dtype(torch.float64)
        torch.ones(300, 300) @ torch.ones(300, 300)
        os.chdir("/")
        os.environ["MARK"] = "1"
        os.umask(0)
        json.mark = open(os.devnull)
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    """
    assert server.run(script(tell), os.environ) == 0
    before = json.loads(state.read_text())
    assert server.run(script(change), os.environ) == 0
    assert server.run(script(tell), os.environ) == 0
    assert json.loads(state.read_text()) == before


def test_the_server_only_imports(server: ForkServer, script: Script, tmp_path: Path) -> None:
    """One thread, no file or socket of a job, and CUDA as torch's import leaves it."""
    (tmp_path / "secret").write_text("truth")
    reader = f"""
        import torch
        if torch.cuda.is_available():
            assert not torch.cuda.is_initialized()
        torch.ones(300, 300) @ torch.ones(300, 300)
        secret = open({str(tmp_path / "secret")!r}).read()
    """
    assert server.run(script("import torch"), os.environ) == 0
    process = Path(f"/proc/{server.pid}")
    files = set((process / "fd").iterdir())
    assert server.run(script(reader), os.environ) == 0
    wait_for(lambda: set((process / "fd").iterdir()) <= files)
    left = (process / "fd").iterdir()
    assert not [path for path in left if path.readlink().is_relative_to(tmp_path)]
    assert len(list((process / "task").iterdir())) == 1


def test_modules_are_imported_once(server: ForkServer, script: Script, tmp_path: Path) -> None:
    """Those a script names before its first job, those of functions after it; none of a user's."""
    (tmp_path / "mine.py").write_text("")
    report = tmp_path / "modules"
    source = f"""
        import tabulate
        import sys
        seen = sorted({{"tabulate", "h5py", "mine"}} & set(names))
        open({str(report)!r}, "w").write(" ".join(seen))
        def work():
            import h5py, mine
        work()
    """
    first = "import os as names_before, sys; names = list(sys.modules)\n"
    path = script(first + dedent(source))
    assert imported_by(path) == ["os", "sys", "tabulate", "sys"]
    assert server.run(path, os.environ) == 0
    assert report.read_text() == "tabulate"
    assert server.run(path, os.environ) == 0
    assert report.read_text() == "h5py tabulate"


def test_a_process_begins_when_its_supervisor_lets_it(
    server: ForkServer, script: Script, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"

    def supervise(pid: int, finish: Callable[[], int]) -> int:
        assert Path(f"/proc/{pid}").exists()
        time.sleep(0.1)
        assert not begun.exists()
        status = finish()
        assert int(begun.read_text()) == pid
        return status

    path = script(f"import os; open({str(begun)!r}, 'w').write(str(os.getpid()))")
    assert server.run(path, os.environ, supervise) == 0


def test_a_supervisor_that_fails_leaves_no_process(server: ForkServer, script: Script) -> None:
    pids: list[int] = []

    def supervise(pid: int, finish: Callable[[], int]) -> int:
        pids.append(pid)
        raise RuntimeError

    with pytest.raises(RuntimeError):
        server.run(script("print('never')"), os.environ, supervise)
    wait_for(lambda: gone(pids[0]))


def test_scripts_run_side_by_side(server: ForkServer, script: Script, tmp_path: Path) -> None:
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
        statuses = list(pool.map(lambda path: server.run(path, os.environ), paths))
    assert statuses == [0, 1, 2, 3, 4]


@pytest.mark.slow
def test_a_job_without_memory_ends_alone(server: ForkServer, script: Script) -> None:
    hungry = """
        import resource
        resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))
        bytearray(2**31)
    """
    assert server.run(script(hungry), os.environ) == 1
    pid = server.pid
    assert server.run(script("bytearray(2**31)"), os.environ) == 0
    assert server.pid == pid


def test_limits_are_those_of_the_caller(script: Script, tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_CPU)
    source = "import resource; assert resource.getrlimit(resource.RLIMIT_CPU)[0] == 1234"
    caller = f"""
        import os, resource
        from gleak.runtime.forkserver import ForkServer
        resource.setrlimit(resource.RLIMIT_CPU, (1234, {limits[1]}))
        raise SystemExit(ForkServer(os.environ).run({script(source)!r}, os.environ))
    """
    assert subprocess.run([sys.executable, script(caller)], check=False).returncode == 0


WAITING = """
    import os, signal, sys, time
    def stop(*_):
        open({folder!r} + "/stopped", "w").close()
        sys.exit(1)
    signal.signal(signal.SIGTERM, stop)
    with open({folder!r} + "/begun.part", "w") as file:
        file.write(str(os.getpid()))
    os.rename({folder!r} + "/begun.part", {folder!r} + "/begun")
    while not os.path.exists({folder!r} + "/end"):
        time.sleep(0.01)
    open({folder!r} + "/ended", "w").close()
"""


def test_jobs_of_a_server_that_is_killed_are_stopped_and_the_next_has_another(
    server: ForkServer, script: Script, tmp_path: Path
) -> None:
    path = script(WAITING.format(folder=str(tmp_path)))
    with ThreadPoolExecutor(1) as pool:
        lost = pool.submit(server.run, path, os.environ)
        wait_for((tmp_path / "begun").exists)
        os.kill(server.pid, signal.SIGKILL)
        with pytest.raises(LostJobError, match="has ended, and this job with it"):
            lost.result(SOON)
    assert (tmp_path / "stopped").exists(), "told only after the job had ended"
    assert server.run(script("raise SystemExit(7)"), os.environ) == 7


def test_jobs_of_a_caller_that_is_killed_are_stopped_and_the_server_ends(
    script: Script, tmp_path: Path
) -> None:
    path = script(WAITING.format(folder=str(tmp_path)))
    caller = f"""
        import os
        from gleak.runtime.forkserver import ForkServer
        server = ForkServer(os.environ)
        def supervise(pid, finish):
            open({str(tmp_path / "server")!r}, "w").write(str(server.pid))
            return finish()
        server.run({path!r}, os.environ, supervise)
    """
    with subprocess.Popen([sys.executable, script(caller)]) as process:
        wait_for((tmp_path / "begun").exists)
        process.kill()
    pid, job = (int((tmp_path / name).read_text()) for name in ("server", "begun"))
    wait_for(lambda: gone(job) and gone(pid))
    assert (tmp_path / "stopped").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_all_processes_reaches_the_job_and_not_the_server(
    number: int, script: Script, tmp_path: Path
) -> None:
    path = script(WAITING.format(folder=str(tmp_path)))
    caller = f"""
        import os, signal
        from gleak.runtime.forkserver import ForkServer
        server = ForkServer(os.environ)
        def supervise(pid, finish):
            signal.signal({int(number)}, lambda *_: None)
            return finish()
        status = server.run({path!r}, os.environ, supervise)
        alive = os.path.exists(f"/proc/{{server.pid}}/fd/0")
        open({str(tmp_path / "status")!r}, "w").write(f"{{status}} {{alive}}")
    """
    command = [sys.executable, script(caller)]
    # What tests start would ignore SIGINT in a shell's background, and SIGHUP under nohup.
    heeded = partial(signal.signal, number, signal.SIG_DFL)
    with subprocess.Popen(command, start_new_session=True, preexec_fn=heeded) as process:
        wait_for((tmp_path / "begun").exists)
        os.killpg(process.pid, number)
    expected = 1 if number == signal.SIGTERM else -number
    assert (tmp_path / "status").read_text() == f"{expected} True"
