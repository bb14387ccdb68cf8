"""The run of Snakemake behind an assessment, in a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import gleak
from gleak.core.errors import GleakError, SpecError, StoppedError

STEPS = re.compile(r"^(\d+ of \d+) steps \((\d+)%\) done$")
SHOWN_LINES = 40


@dataclass(frozen=True)
class WorkflowRun:
    """A run of the workflow in the current folder.

    Args:
        snakefile: of the workflow.
        config: configuration file of the run.
        log: file for all that Snakemake prints.
        modules: folder of the user's modules.
        options: further words of Snakemake's command line.
    """

    snakefile: Path
    config: Path
    log: Path
    modules: Path
    options: Sequence[str] = ()

    def make(self, targets: Sequence[Path]) -> bool:
        """Make files and all that they depend on; print the progress.

        Returns:
            False if the options kept Snakemake from making them, as a dry run does.

        Raises:
            GleakError: Snakemake failed; gives the last lines that it printed.
            StoppedError: interrupted; what is done is kept.
        """
        with self.log.open("w", encoding="utf-8") as log:
            code = self._follow(self._command(targets), log)
        if code:
            last = self.log.read_text(encoding="utf-8").splitlines()[-SHOWN_LINES:]
            print(*last, sep="\n", file=sys.stderr)
            raise GleakError(f"snakemake ended with exit code {code}; all that it said: {self.log}")
        return all(target.exists() for target in targets)

    def _command(self, targets: Sequence[Path]) -> list[str]:
        snakemake = [sys.executable, "-m", "snakemake", "--snakefile", str(self.snakefile)]
        configured = ["--configfile", str(self.config)]
        return [*snakemake, *configured, *self.options, "--", *map(str, targets)]

    def _follow(self, command: Sequence[str], log: TextIO) -> int:
        """Run a command, and show each new count of finished jobs."""
        paths = [str(self.modules), *filter(None, [os.environ.get("PYTHONPATH")])]
        with subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        ) as process:
            assert process.stdout is not None
            try:
                for line in process.stdout:
                    log.write(line)
                    if done := STEPS.match(line.strip()):
                        print(f"  {done[2]:>3}%  {done[1]} jobs", flush=True)
            except KeyboardInterrupt:
                process.wait()
                raise StoppedError("interrupted; the same command continues it") from None
        return process.returncode


def find_snakefile(given: Path | None) -> Path:
    """Return the Snakefile of the workflow.

    Args:
        given: by the user; None: that of the clone that this package is part of.

    Raises:
        SpecError: there is none.
    """
    path = given or Path(gleak.__file__).parents[1] / "Snakefile"
    if not path.is_file():
        raise SpecError(
            f"{path}: no such file; an assessment runs the workflow of a clone of gleak: install "
            "it with pip install -e, or give --snakefile FOLDER/Snakefile"
        )
    return path.resolve()
