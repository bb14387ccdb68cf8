"""Jobs are forked from a process that has imported their modules; see gleak/runtime/forkserver.py.

Snakemake starts every script as a new Python process and has no option for another way, so the
class that does it is replaced when a run begins. Dry runs start no jobs here.
"""

import os
import subprocess
import sys
from contextlib import nullcontext

import snakemake.script as python_scripts
from snakemake.benchmark import benchmarked
from snakemake.exceptions import WorkflowError

from gleak.runtime.forkserver import SUPPORTED, ForkServer, LostJobError

ONE_THREAD = {
    f"{library}_NUM_THREADS": "1" for library in ("OMP", "GOTO", "OPENBLAS", "MKL", "NUMEXPR")
} | {"VECLIB_MAXIMUM_THREADS": "1"}
TEMPORARY = ("TMPDIR", "TMP", "TEMPDIR", "TEMP")
FORK_SERVER = ForkServer({**os.environ, **ONE_THREAD})


class ForkedScript(python_scripts.PythonScript):
    """A script whose process is forked if its job has one thread, no GPU and no environment."""

    def execute_script(self, fname, edit=False):
        """Run the script with the environment variables that Snakemake would set."""
        environment = {**os.environ, **ONE_THREAD}
        if folder := self.resources.get("tmpdir"):
            environment.update(dict.fromkeys(TEMPORARY, folder))
        try:
            status = FORK_SERVER.run(fname, environment, self.measured) if self.forks else None
        except LostJobError as error:
            raise WorkflowError(f"{error}; run snakemake again")
        except OSError:
            status = None
        if status is None:
            super().execute_script(fname, edit)
        elif status:
            raise subprocess.CalledProcessError(status, [sys.executable, fname])

    @property
    def forks(self):
        """True if the job can be forked."""
        own = self.conda_env or self.container_img or self.env_modules or self.shadow_dir
        gpu = self.resources.get("gpu") and SETTINGS.device != "cpu"
        return not (own or gpu) and self.threads == 1

    def measured(self, pid, finish):
        """Return the exit status of a process that is measured for the job's benchmark file."""
        record = self.bench_record
        with nullcontext() if record is None else benchmarked(pid, record):
            return finish()


def fork_scripts():
    """Fork the scripts of this run from now on."""
    if SETTINGS.start_method == "fork" and SUPPORTED:
        python_scripts.PythonScript = ForkedScript
