"""Runs of the workflow by other programs than the user's shell."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Timer

from gleak.core.errors import GleakError, SpecError, StoppedError

DONE = re.compile(r"^(\d+ of \d+) steps \((\d+)%\) done$")
LOCKED = "LockException:"
"""Line that Snakemake prints in a folder where another run has not ended."""


@dataclass(frozen=True)
class Workflow:
    """Snakemake with a Snakefile and words of its command line.

    Args:
        snakefile: of the workflow.
        options: without targets.
        log: file for all that Snakemake prints.
        modules: folders in which its jobs find modules of the user, besides those of this process.
        prefix: command that starts Snakemake, such as ``nice``.
    """

    snakefile: Path
    options: Sequence[str]
    log: Path
    modules: Sequence[Path] = ()
    prefix: Sequence[str] = ()

    def make(self, targets: Iterable[Path], seconds: float | None = None) -> int:
        """Make files and all that they depend on in the current folder; print the progress.

        Args:
            targets: the files.
            seconds: from then on no further job is started; None: never.

        Returns:
            Exit code of Snakemake.

        Raises:
            GleakError: another run in the current folder has not ended, or was killed.
            StoppedError: interrupted; what is done is kept.
        """
        command = [*self.prefix, sys.executable, "-m", "snakemake", "--snakefile"]
        words = [str(self.snakefile), *self.options, "--", *map(str, targets)]
        found = [*map(str, self.modules), *filter(None, [os.environ.get("PYTHONPATH")])]
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with (
            self.log.open("w", encoding="utf-8") as log,
            subprocess.Popen(
                [*command, *words],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(found)},
            ) as process,
        ):
            end = None if seconds is None else Timer(seconds, process.terminate)
            if end is not None:
                end.start()
            assert process.stdout is not None
            locked = False
            try:
                for line in process.stdout:
                    log.write(line)
                    locked |= line.strip() == LOCKED
                    if done := DONE.match(line.strip()):
                        print(f"  {done[2]:>3}%  {done[1]} jobs", flush=True)
            except KeyboardInterrupt:
                log.writelines(process.stdout)  # It waits for its output to be read.
                process.wait()
                raise StoppedError("interrupted; the same command continues it") from None
            finally:
                if end is not None:
                    end.cancel()
        if locked:
            unlock = ["snakemake", "--snakefile", str(self.snakefile), *self.options, "--unlock"]
            raise GleakError(
                f"{Path.cwd()}: another run of Snakemake has locked this folder; wait until it has "
                f"ended, or if it was killed, run: {shlex.join(unlock)}"
            )
        return process.returncode


def find_snakefile(given: Path | None) -> Path:
    """Return the Snakefile of the workflow: that given, or that of the clone with this package.

    Raises:
        SpecError: there is none.
    """
    path = given or Path(__file__).parents[2] / "Snakefile"
    if not path.is_file():
        raise SpecError(
            f"{path}: no such file; the workflow is that of a clone of gleak: install it with "
            "pip install -e, or give --snakefile FOLDER/Snakefile"
        )
    return path.resolve()
