"""Batches of light jobs, each one SLURM job; see gleak/studies/job_batches.py.

On the node the executor starts Snakemake, which starts it again through srun for the whole batch.
Neither knows all that the main process knows, and hooks such as `onstart` are off there.
"""

from snakemake.jobs import GroupJob

from gleak.artifacts.atomic import atomic
from gleak.core.registry import parse as parse_spec

ASKED = Path(RESULTS) / "asked_metrics.json"
SUBMITTED = {}
"""Batch -> when it was submitted, by the clock of the file system."""
register_batch, finish_batch = GroupJob.register, GroupJob.postprocess


def submit_batches():
    """Tell nodes the sizes of batches, without which they start Snakemake for each job of a batch, and
    what studies need of scores.
    """
    workflow.executor_plugin.common_settings.pass_group_args = True
    if workflow.non_local_exec:
        needed = {path_in(scored): sorted(map(str, found)) for scored, found in asked().items()}
        with atomic(ASKED) as temporary:
            temporary.write_text(json.dumps(needed))


def path_in(scored):
    """Return the folder of a cell."""
    return "/".join(scored.strings().values())


@cache
def read_asked():
    """Return the metrics that the studies of the machine that submits need of each cell."""
    return json.loads(ASKED.read_text())


def told(scored):
    """Return the metrics that studies need of a cell, on a node, which does not read the studies."""
    return {parse_spec("metric", text) for text in read_asked().get(path_in(scored), ())}


def register(batch, external_jobid=None):
    """Note when a batch is submitted."""
    register_batch(batch, external_jobid=external_jobid)
    file = next(iter(batch)).output[0]
    persistence = workflow.persistence
    SUBMITTED[batch] = persistence._get_recorded_starttime(persistence._get_key(file))


async def finish_members(batch, error=False, **options):
    """Finish a batch; if it failed, each of its jobs as what became of it.

    Snakemake would delete all results of the batch.
    """
    if not error:
        return await finish_batch(batch, **options)
    for job in batch:
        failed = not await succeeded(job, SUBMITTED.get(batch))
        await job.postprocess(error=failed, check_output_mtime=False, **options)


async def succeeded(job, submitted):
    """Return True if all outputs were written since the job's batch was submitted.

    The node deletes outputs when their job begins, and those of a job that fails.
    """
    if submitted is None:
        return False
    for file in job.output:
        if not await file.exists() or (await file.mtime()).local() < submitted:
            return False
    return True


@cache
def keep_going():
    """Let a node run the jobs of a batch that do not depend on one that failed."""
    workflow.execution_settings.keep_going = True


GroupJob.register, GroupJob.postprocess = register, finish_members

if not workflow.is_main_process:
    fork_scripts()
    # srun starts Snakemake with all cores of the node, whose memory and GPUs belong to others.
    workflow.global_resources["_cores"] = int(os.environ.get("SLURM_CPUS_PER_TASK", 1))
