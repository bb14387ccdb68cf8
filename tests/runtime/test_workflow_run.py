"""Snakemake as a child process; see `gleak.runtime.workflow`."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from gleak.core.errors import GleakError, StoppedError
from gleak.runtime.workflow import Workflow

MUCH = 300_000
PRINTING = f"import signal; signal.alarm(20); print('a job ends'); print('log ' * {MUCH // 4})"
"""More than a pipe holds, as Snakemake prints the logs of the jobs that it stops."""


class Interrupt:
    """Stands in for the pattern of finished jobs: a key is pressed when a line is compared."""

    def match(self, _: str) -> None:
        raise KeyboardInterrupt


def test_an_interrupted_run_ends_however_much_it_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gleak.runtime.workflow.DONE", Interrupt())
    prefix = [sys.executable, "-c", PRINTING]
    workflow = Workflow(tmp_path / "Snakefile", [], tmp_path / "run.log", prefix=prefix)
    with pytest.raises(StoppedError, match="the same command continues it"):
        workflow.make([tmp_path / "figure.svg"])
    assert len(workflow.log.read_text()) > MUCH


def test_a_locked_folder_is_named_with_the_command_that_unlocks_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snakefile, folder = tmp_path / "Snakefile", tmp_path / "folder"
    snakefile.write_text("rule a:\n    output: 'a'\n    shell: 'touch {output}'\n")
    locks = folder / ".snakemake/locks"
    locks.mkdir(parents=True)
    (locks / "0.output.lock").write_text("a\n")
    monkeypatch.chdir(folder)
    workflow = Workflow(snakefile, ["--cores", "1"], tmp_path / "run.log")
    with pytest.raises(GleakError, match=f"{folder}: another run of Snakemake") as found:
        workflow.make([Path("a")])
    words = shlex.split(str(found.value).rpartition("run: ")[2])
    subprocess.run([sys.executable, "-m", *words], check=True)
    assert workflow.make([Path("a")]) == 0
