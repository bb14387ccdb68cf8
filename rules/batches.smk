"""Batches of light jobs, each one SLURM job; see gleak/experiments/batches.py.

On the node the executor starts Snakemake, which starts it again through srun for the whole batch.
Neither knows all that the main process knows, and hooks such as `onstart` are off there.
"""

from snakemake.jobs import GroupJob

finish_batch = GroupJob.postprocess


def submit_batches():
    """Pass `--group-components` on to nodes, which else start Snakemake for each job of a batch, and
    keep the results of the jobs that succeeded when a batch fails.
    """
    workflow.executor_plugin.common_settings.pass_group_args = True
    GroupJob.postprocess = finish_members


async def finish_members(batch, error=False, **options):
    """Finish a batch; if it failed, each of its jobs as what became of it.

    Snakemake would delete all results of the batch.
    """
    if not error:
        return await finish_batch(batch, **options)
    for job in batch:
        failed = not await succeeded(job)
        await job.postprocess(error=failed, check_output_mtime=False, **options)


async def succeeded(job):
    """Return True if all outputs were written since the job was submitted.

    The node deletes outputs when their job begins, and those of a job that fails.
    """
    persistence = workflow.persistence
    for file in job.output:
        submitted = persistence._get_recorded_starttime(persistence._get_key(file))
        if not await file.exists() or (await file.mtime()).local() < submitted:
            return False
    return True


@cache
def keep_going():
    """Let a node run the jobs of a batch that do not depend on one that failed."""
    workflow.execution_settings.keep_going = True


if not workflow.is_main_process:
    fork_scripts()
    # srun starts Snakemake with all cores of the node, whose memory and GPUs belong to others.
    workflow.global_resources["_cores"] = int(os.environ.get("SLURM_CPUS_PER_TASK", 1))
