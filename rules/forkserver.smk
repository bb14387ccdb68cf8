"""The only place that changes how Snakemake works, if it is a version for which this was tried.

Snakemake starts every script as a new Python process, which imports torch again: more than the work
of most small jobs. It has no option for another way, so the class that starts scripts is replaced
when a run begins (see gleak/runtime/forkserver.py). Other versions start scripts as they do; so do
dry runs and the nodes of a cluster.
"""

import os
import subprocess
import sys
from contextlib import nullcontext

import snakemake.script as python_scripts
from snakemake import __version__ as snakemake_version
from snakemake.benchmark import benchmarked
from snakemake.exceptions import WorkflowError

from gleak.runtime.forkserver import LOST, SUPPORTED, run_script

TRIED = ((9, 27), (9, 28))
"""First version of Snakemake for which this was tried, and the first for which it was not."""
ONE_THREAD = {
    f"{library}_NUM_THREADS": "1" for library in ("OMP", "GOTO", "OPENBLAS", "MKL", "NUMEXPR")
} | {"VECLIB_MAXIMUM_THREADS": "1"}
TEMPORARY = ("TMPDIR", "TMP", "TEMPDIR", "TEMP")
LIBRARIES = {
    "score": ["skimage.metrics", "scipy.optimize", "scipy.spatial", "lpips"],
    "draw": ["seaborn", "scipy.stats"],
    "judge": ["pandas", "scipy.stats"],
}
"""Stage -> what its jobs import late."""
PRELOADED = ["gleak.runtime.torchvision_import"]


class ForkedScript(python_scripts.PythonScript):
    """A script whose process is forked if its job has one thread, no GPU and no environment."""

    def execute_script(self, fname, edit=False):
        """Run the script with the environment variables that Snakemake would set."""
        own = self.conda_env or self.container_img or self.env_modules or self.shadow_dir
        if own or self.resources.get("gpu_quarters") or self.threads != 1:
            return super().execute_script(fname, edit)
        environment = {**os.environ, **ONE_THREAD}
        if folder := self.resources.get("tmpdir"):
            environment.update(dict.fromkeys(TEMPORARY, folder))
        record = self.bench_record
        measured = lambda pid: benchmarked(pid, record) if record else nullcontext()
        status = run_script(fname, environment, PRELOADED, measured)
        if status == LOST:
            raise WorkflowError(
                "the process from which jobs are forked has ended, and this job with it; "
                "run snakemake again"
            )
        if status:
            raise subprocess.CalledProcessError(status, [sys.executable, fname])


def is_tried(version):
    """Return True if this was tried with a version of Snakemake."""
    return TRIED[0] <= tuple(map(int, version.split(".")[:2])) < TRIED[1]


def prepare_snakemake():
    """Fork the scripts of this run from now on, and schedule jobs only when one has finished."""
    if not is_tried(snakemake_version):
        return
    if SETTINGS.start_method == "fork" and SUPPORTED:
        os.environ.update(ONE_THREAD)
        for stage in sorted({job.rule.name for job in workflow.dag.needrun_jobs()} & {*STAGES}):
            PRELOADED.extend([STAGES[stage].code, *LIBRARIES.get(stage, [])])
        python_scripts.PythonScript = ForkedScript
    # The default limit of 100 jobs a second makes every finished job add a timer that repeats the
    # scheduling each second; after some hundred jobs this uses half a core. No option turns it off.
    limit = workflow.scheduler.job_rate_limiter
    if limit and (limit.max_jobs, limit.timespan) == (100, 1):
        workflow.scheduler.job_rate_limiter = None
